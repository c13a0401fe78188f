#include "world/formation.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "duration_text.hpp"
#include "host/host_backend.hpp"
#include "link/local_peer.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/notice.hpp"
#include "world/runtime_core.hpp"
#include "world/store_trouble.hpp"
#include "world/world_router.hpp"

namespace manyworlds::inline v0::detail {

namespace {

using namespace std::chrono_literals;

constexpr duration retry_pause = 10ms;
/// A peer that has not said by then whether it shares memory is reached over tcp.
constexpr duration settle_limit = 1s;
/// A person who has just started the processes by hand watches the log, so it is
/// written often at first. A server that waits for hours for a member must not fill it.
constexpr duration told_often = 10s;
constexpr duration between_tellings = 1s;
static_assert(between_tellings < told_often);

}  // namespace

formation::formation(world_core& core)
    : core_(core),
      runtime_(core.runtime()),
      router_(runtime_.worlds()),
      service_(runtime_.service()),
      peers_(runtime_.peers()),
      store_(core.gate()),
      rank_(core.options().rank),
      size_(core.options().size),
      deadline_(service_.now() + core.options().form) {
  MW_ASSERT(service_.is_current(), "a formation lives on the service reactor");
  MW_ASSERT(rank_ >= 0 && rank_ < size_, "options that are wrong form no world");
  router_.begin(*this);
  if (core.inherits()) adopt(core.inherits()->view);
}

formation::~formation() {
  store_.set_parting_request(std::nullopt);
  router_.end(*this);
}

std::string formation::key(const std::string& tail) const {
  return fmt::format("mw/{}/{}", core_.options().name.view(), tail);
}
std::string formation::join_key(rank_t rank) const {
  return join_record::key(core_.options().name, rank);
}

rank_t formation::known_as(rank_t rank) const {
  MW_ASSERT(rank >= 0 && rank < size_, "a member has a rank");
  if (!core_.inherits()) return rank;
  return core_.inherits()->previous_ranks[static_cast<std::size_t>(rank)];
}

duration formation::left() const {
  return std::max(duration::zero(), deadline_ - service_.now());
}

void formation::adopt(const world_view& view) {
  world_id_ = view.id;
  members_.clear();
  for (const process_address& m : view.members) members_.push_back(m.id);
  lost_member_ = false;
}

void formation::forget_view() noexcept {
  world_id_ = 0;
  members_.clear();
  lost_member_ = false;
}

void formation::take(control_message message) {
  // Adopt the view at once: messages about it may follow right behind the proposal.
  const auto* proposal = std::get_if<propose_message>(&message);
  if (proposal && world_id_ == 0) adopt(proposal->view);
  inbox_.push_back(std::move(message));
  news_.set();
}

bool formation::may_say(const control_message& message,
                        const incarnation& speaker) const noexcept {
  const auto is_member = [&](std::size_t rank) {
    return rank < members_.size() && members_[rank] == speaker;
  };
  if (std::holds_alternative<commit_message>(message) ||
      std::holds_alternative<rollback_message>(message)) {
    return is_member(0);
  }
  if (const auto* said = std::get_if<ready_message>(&message)) {
    return said->rank >= 0 && is_member(static_cast<std::size_t>(said->rank));
  }
  if (std::holds_alternative<broken_message>(message)) {
    return std::find(members_.begin(), members_.end(), speaker) != members_.end();
  }
  return true;
}

void formation::link_lost(const incarnation& peer, enum cause why,
                          const std::string& detail) {
  const auto found = std::find(members_.begin(), members_.end(), peer);
  if (found == members_.end()) return;
  if (!std::exchange(lost_member_, true)) {
    loss_ = {world_id_, why, static_cast<rank_t>(found - members_.begin()), detail};
  }
  news_.set();
}

void formation::tell(const link_hold& l, const control_message& message) {
  if (l && l->is_up()) l->send(encode(message));
}

void formation::roll_back(const std::vector<link_hold>& links,
                          const std::string& reason) noexcept {
  for (const link_hold& l : links) tell(l, rollback_message{world_id_, reason});
  forget_view();
}

void formation::note_refusal(rank_t rank, const process_address& who) {
  const bool is_new = !refused_ || refused_->rank != rank || refused_->who.id != who.id;
  refused_ = refusal{rank, who};
  if (!is_new) return;
  runtime_.log(log_level::warning,
               fmt::format("{}: rank {}: {}", core_.options().name.view(), rank,
                           refused_->text()));
}

std::string formation::refusal::text() const {
  return who.text() +
         " is refused: it has another secret, or only one of both sides has a secret";
}

failure formation::late() const {
  std::string detail = fmt::format("not formed within {}: {}",
                                   duration_text(core_.options().form), waiting_for_);
  enum cause why = waiting_as_;
  if (const std::string trouble = trouble_with(store_); !trouble.empty()) {
    detail += "; " + trouble;
    // Without the store it is unknown which ranks have joined.
    if (why == cause::not_joined) why = cause::store_unreachable;
  }
  process_identity peer = waiting_peer_;
  if (refused_) {
    detail += fmt::format("; in place of rank {}, {}", refused_->rank, refused_->text());
    if (why == cause::not_joined && refused_->rank == waiting_rank_) {
      why = cause::wrong_secret;
      peer = refused_->who.identity;
    }
  }
  failure f =
      core_.describe_failure(why, waiting_rank_, operation_kind::form, std::move(detail));
  if (peer.pid != 0) f.peer = peer;
  return f;
}

task<void> formation::run() {
  bool is_late = false;
  std::optional<failure> failed;
  const std::string who = core_.options().name.str() + " is not formed yet";
  try {
    co_await when_any(within(form(), left()), stopped_.wait(), tell_what_is_missing(),
                      tell_of_trouble(runtime_, who, store_));
  } catch (const timed_out&) {
    is_late = true;
  } catch (const give_up& g) {
    failed = core_.describe_failure(g.why, g.rank, operation_kind::form, g.reason);
    if (g.peer.pid != 0) failed->peer = g.peer;
  } catch (const store_error& e) {
    failed = core_.describe_failure(cause::store_unreachable, no_rank,
                                    operation_kind::form, e.what());
  } catch (const link_error& e) {
    failed = core_.describe_failure(e.cause(), no_rank, operation_kind::form, e.what());
  } catch (const std::exception& e) {
    // A store that the user provides may throw anything.
    failed = core_.describe_failure(cause::out_of_resources, no_rank,
                                    operation_kind::form, e.what());
  }
  if (is_late) failed = late();
  const bool store_answers = !failed || failed->cause != cause::store_unreachable;
  bool withdrawn = true;
  // A shut gate asks nothing: its request to withdraw was prepared before.
  const bool may_withdraw = store_answers || store_.is_shut();
  if ((failed && may_withdraw) || core_.state() == world_state::broken) {
    // Best effort, and bounded. It comes before the failure is told: the store may be
    // gone right after.
    try {
      co_await within(withdraw_join(), answer_limit);
    } catch (const std::exception&) {
      withdrawn = false;
    }
  }
  if (!withdrawn) {
    runtime_.log(log_level::debug,
                 fmt::format("{}: the join record could not be erased from the store",
                             core_.options().name.view()));
  }
  if (failed) core_.break_with(std::move(*failed));
}

task<void> formation::tell_what_is_missing() {
  const time_point begun = service_.now();
  for (duration pause = between_tellings;;) {
    co_await sleep_for(pause);
    const duration waited = service_.now() - begun;
    const std::string trouble = trouble_with(store_);
    runtime_.log(
        log_level::warning,
        fmt::format("{}: rank {} of {} is not in a world after {}: {}{}{}",
                    core_.options().name.view(), rank_, size_, duration_text(waited),
                    waiting_for_, trouble.empty() ? "" : "; ", trouble));
    if (waited >= told_often) pause = told_often;
  }
}

task<void> formation::form() {
  if (core_.options().backend == backend_kind::nccl) co_await open_device();
  if (core_.inherits()) co_return co_await succeed(core_.inherits()->view);
  co_await until_formed();
}

// Called before anything else, so that a member that cannot take part keeps no other
// waiting.
task<void> formation::open_device() {
  struct opening {
    notice heard;
    opened_device result;
  };
  waiting_as_ = cause::device_unavailable;
  waiting_rank_ = rank_;
  waiting_for_ = "the GPU's driver does not answer";
  // Shared, since the opening may still run when this formation no longer waits.
  const auto asked = std::make_shared<opening>();
  runtime_.devices().open(core_.options().device, core_.options().on_device,
                          [asked](opened_device found) {
                            asked->result = std::move(found);
                            asked->heard.set();
                          });
  co_await asked->heard.wait();
  if (asked->result.why != cause::none) {
    throw give_up{asked->result.why, rank_, {}, asked->result.text};
  }
  core_.keep_device(std::move(asked->result.device));
}

task<void> formation::until_formed() {
  for (;;) {
    std::string reason;
    try {
      co_await try_once();
      co_return;
    } catch (const try_again& t) {
      reason = t.reason;
    }
    runtime_.log(log_level::debug, fmt::format("{}: forming again: {}",
                                               core_.options().name.view(), reason));
    co_await sleep_for(retry_pause + runtime_.jitter(retry_pause));
  }
}

task<void> formation::try_once() {
  attempt_ = runtime_.random_word() | 1;
  inbox_.clear();
  forget_view();
  co_await claim_rank();
  if (rank_ == 0) {
    co_await lead();
  } else {
    co_await follow();
  }
}

// --- connecting

task<void> formation::connect(const world_view& view, formed_parts& parts) {
  auto all = [this, &view, &parts](scope& s) -> task<void> {
    for (rank_t r = 0; r < size_; ++r) {
      if (r != rank_) s.spawn(connect_one(view, r, parts));
    }
    co_return;
  };
  co_await scope::run(all);
}

task<void> formation::connect_one(const world_view& view, rank_t peer,
                                  formed_parts& parts) {
  MW_ASSERT(peer != rank_ && peer >= 0 && peer < view.size(),
            "a member connects to each other member");
  MW_ASSERT(parts.links.size() == view.members.size() &&
                parts.channels.size() == view.members.size(),
            "a formation has room for a link and a channel by rank");
  const std::size_t slot = static_cast<std::size_t>(peer);
  const time_point until = service_.now() + std::min(left(), ready_limit);
  if (!parts.links[slot]) {
    parts.links[slot] = co_await peers_.reach(view.member(peer), until);
  }
  data_channel& channel = parts.channels[slot];
  // The lower rank chooses and makes the one channel of each pair.
  if (rank_ < peer) {
    link& l = *parts.links[slot].get();
    if (host_backend::uses_slots &&
        co_await l.local().paired(service_.now() + std::min(left(), settle_limit))) {
      channel = l.local().allocate_slot(view.id, rank_);
    }
    if (channel.is_open()) co_return;
    stream dialled = co_await peers_.dial_data(view.member(peer), view.id, rank_, until);
    channel = dialled.release();
    co_return;
  }
  for (;;) {
    auto arrived = router_.claim(view.id, peer, view.member(peer).id);
    if (arrived) {
      channel = std::move(*arrived);
      co_return;
    }
    news_.reset();
    co_await news_.wait();
  }
}

}  // namespace manyworlds::inline v0::detail
