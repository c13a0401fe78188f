#include "world/world_router.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "manyworlds/detail/assertion.hpp"
#include "world/runtime_core.hpp"
#include "world/shrink_protocol.hpp"

namespace manyworlds::inline v0::detail {

namespace {
/// A proposal and the connections of its members travel apart. A connection that comes
/// without its proposal is dropped after this time.
constexpr duration early_limit = std::chrono::seconds(10);
/// Equals the default of a world's `suspect_after`; for processes that no longer share
/// a world.
constexpr duration silence_limit = std::chrono::seconds(1);
static_assert(silence_limit == world_options().suspect_after);
}  // namespace

world_router::world_router(runtime_core& rt) : runtime_(rt), service_(rt.service()) {}

std::shared_ptr<world_core> world_router::add(std::shared_ptr<world_core> core) {
  MW_ASSERT(core && core->epoch() == 0, "a world is listed before it is formed");
  const std::lock_guard lock(mutex_);
  for (const auto& w : worlds_) {
    const world_state state = w->state();
    // Listed and still described: another thread is just beginning to form it.
    const bool live = state == world_state::described || state == world_state::forming ||
                      state == world_state::up;
    // Two stores may hold two worlds of one name. Two clients of one store look the
    // same: rank 0, or the claim of the rank, finds those.
    if (live && w->options().name == core->options().name &&
        &w->rendezvous() == &core->rendezvous()) {
      return w;
    }
  }
  worlds_.push_back(std::move(core));
  return nullptr;
}

void world_router::remove(const world_core& core) noexcept {
  ended_world trace{
      core.options().name, core.epoch(), core.first_failure(), service_.now(), {}};
  const failure& why = trace.first_cause;
  const bool was_loss = why.cause == cause::silent_peer || why.cause == cause::peer_died;
  if (was_loss && why.rank >= 0 && why.rank < core.view().size())
    trace.lost = core.view().member(why.rank).id;
  // Destroyed outside the lock: the last reference may be this one.
  std::shared_ptr<world_core> gone;
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(worlds_.begin(), worlds_.end(),
                                  [&](const auto& w) { return w.get() == &core; });
  if (found == worlds_.end()) return;
  gone = std::move(*found);
  worlds_.erase(found);
  MW_ASSERT(ended_.size() <= most_ended, "few ended worlds are remembered (law 9)");
  if (ended_.size() == most_ended) ended_.erase(ended_.begin());
  ended_.push_back(std::move(trace));
}

std::vector<ended_world> world_router::ended() const {
  const std::lock_guard lock(mutex_);
  return ended_;
}

std::vector<std::shared_ptr<world_core>> world_router::snapshot() const {
  const std::lock_guard lock(mutex_);
  return worlds_;
}

std::shared_ptr<world_core> world_router::holder_of(const world_name& name, rank_t rank,
                                                    const world_core* except) const {
  for (const auto& w : snapshot()) {
    const world_state state = w->state();
    const bool live = state == world_state::forming || state == world_state::up;
    if (live && w.get() != except && w->options().name == name &&
        w->home_rank() == rank) {
      return w;
    }
  }
  return nullptr;
}

void world_router::end(const formation& f) noexcept {
  std::erase_if(formations_, [&](const formation* each) { return each == &f; });
}

bool world_router::begin(shrink_protocol& p) {
  MW_ASSERT(service_.is_current(), "a shrink protocol runs on the service reactor");
  for (const shrink_protocol* each : shrinking_) {
    if (each->base_id() == p.base_id()) return false;
  }
  shrinking_.push_back(&p);
  return true;
}

void world_router::end(const shrink_protocol& p) noexcept {
  std::erase_if(shrinking_, [&](const shrink_protocol* each) { return each == &p; });
}

void world_router::note_formed(const std::shared_ptr<world_core>& core) {
  MW_ASSERT(service_.is_current(), "a world is formed on the service reactor");
  next_examination_ = {};
  views_.note_formed(core);
}

void world_router::take_refusal(const refuse_message& message) {
  for (formation* f : formations_) {
    if (f->is_trying(message.attempt)) return f->take(message);
  }
}

void world_router::link_message(const std::shared_ptr<link>& from,
                                std::span<const std::byte> raw) {
  MW_ASSERT(service_.is_current(), "links bring messages on the service reactor");
  control_message message = decode_control(raw);
  if (is_between_survivors(message)) return take_between_survivors(from, message);
  if (const auto* broken = std::get_if<broken_message>(&message)) {
    for (const auto& w : snapshot()) {
      if (w->view().id != broken->world_id || w->view().members.empty()) continue;
      const rank_t reporter = w->view().rank_of(from->peer().id);
      // Only members speak for a world: no other process can break it (law 6).
      if (reporter == no_rank) continue;
      w->break_with(w->describe_failure(broken->why, broken->culprit,
                                        operation_kind::none, broken->detail),
                    reporter);
    }
  }
  if (const auto* proposal = std::get_if<propose_message>(&message)) {
    const auto wanted =
        std::find_if(formations_.begin(), formations_.end(),
                     [&](formation* f) { return f->is_trying(proposal->attempt); });
    // Only rank 0 of the view may propose it.
    const bool from_leader = proposal->view.member(0).id == from->peer().id;
    if (wanted != formations_.end() && from_leader) {
      (*wanted)->take(std::move(message));
    } else {
      from->send(encode(ready_message{proposal->view.id, proposal->rank, false,
                                      "the member has given up that try"}));
    }
    return;
  }
  for (shrink_protocol* p : shrinking_) p->overhear(message, from->peer().id);
  for (formation* f : formations_) {
    const bool concerned = std::visit(
        [&](const auto& m) {
          if constexpr (requires { m.world_id; }) {
            return m.world_id == f->world_id();
          } else if constexpr (requires { m.attempt; }) {
            return f->is_trying(m.attempt);
          } else {
            return false;
          }
        },
        message);
    if (concerned) {
      if (!f->may_say(message, from->peer().id)) return;
      f->take(std::move(message));
      return;
    }
  }
}

void world_router::take_between_survivors(const std::shared_ptr<link>& from,
                                          control_message& message) {
  const std::uint64_t base = std::visit(
      [](const auto& m) -> std::uint64_t {
        if constexpr (requires { m.base; }) return m.base;
        return 0;
      },
      message);
  for (shrink_protocol* p : shrinking_) {
    if (p->base_id() == base) return p->take(from, std::move(message));
  }
  if (const auto* call = std::get_if<survivor_message>(&message)) {
    const auto answer =
        views_.status_of(*call, from->peer().id, is_being_succeeded(call->base));
    if (answer) from->send(encode(*answer));
  } else if (const auto* offered = std::get_if<successor_message>(&message)) {
    from->send(encode(broken_message{offered->view.id, cause::abandoned, no_rank,
                                     "a member has given up shrinking"}));
  }
}

bool world_router::is_being_succeeded(std::uint64_t base) const {
  const auto worlds = snapshot();
  return std::any_of(worlds.begin(), worlds.end(), [&](const auto& w) {
    return w->inherits() && w->inherits()->origin == base && w->epoch() == 0;
  });
}

void world_router::link_ended(const std::shared_ptr<link>& l, enum cause why,
                              const std::string& detail) noexcept {
  if (why == cause::protocol_error && runtime_.logs(log_level::warning)) {
    runtime_.log(log_level::warning,
                 fmt::format("the link with {} is ended: {}", l->peer().text(), detail));
  }
  // The peer no longer uses the other end of these slots.
  std::erase_if(early_, [&](const early_channel& e) {
    return e.channel.has_slot() && e.who == l->peer().id;
  });
  // The end of a link that is not held says nothing of the peer: a formation dials
  // again.
  if (l->is_held()) {
    for (formation* f : std::vector(formations_)) f->link_lost(l->peer().id, why, detail);
  }
  for (const auto& w : snapshot()) w->members().link_lost(*l, why, detail);
  for (shrink_protocol* p : shrinking_) p->note_news();
}

void world_router::data_connection(stream connection, const hello& words) {
  keep(connection.release(), words.world_id, words.rank, words.self.id);
}

void world_router::slot_offered(const std::shared_ptr<link>& from, std::uint64_t world_id,
                                rank_t rank, shm_slot slot) {
  keep(std::move(slot), world_id, rank, from->peer().id);
}

void world_router::keep(data_channel channel, std::uint64_t world_id, rank_t rank,
                        const incarnation& who) {
  MW_ASSERT(service_.is_current(), "channels come on the service reactor");
  MW_ASSERT(early_.size() <= most_early, "few early channels are kept (law 9)");
  if (early_.size() >= most_early) early_.erase(early_.begin());
  early_.push_back(
      early_channel{world_id, rank, who, service_.now(), std::move(channel)});
  for (formation* f : formations_) {
    if (f->world_id() == world_id) f->connection_arrived();
  }
}

std::optional<data_channel> world_router::claim(std::uint64_t world_id, rank_t peer,
                                                const incarnation& who) {
  MW_ASSERT(service_.is_current(), "channels are claimed on the service reactor");
  const auto found = std::find_if(early_.begin(), early_.end(), [&](const auto& e) {
    return e.world_id == world_id && e.rank == peer && e.who == who;
  });
  if (found == early_.end()) return std::nullopt;
  data_channel channel = std::move(found->channel);
  early_.erase(found);
  return channel;
}

task<bytes> world_router::answer_query(bytes question) {
  co_return bytes(1, static_cast<std::byte>(answer(decode_claim(question))));
}

claim_answer world_router::answer(const claim_query& query) {
  MW_ASSERT(service_.is_current(), "claims are answered on the service reactor");
  const claim_answer by_worlds = answer_by_worlds(query);
  if (query.epoch == 0 || by_worlds != claim_answer::vacant) return by_worlds;
  // Its world is over here; the link may still show whether the process lives.
  const duration limit = std::max(silence_limit, 5 * runtime_.options().heartbeat);
  const auto last = runtime_.peers().last_heard(query.holder);
  // If the link is over too, the cause that ended the world still tells.
  const bool is_gone = last ? service_.now() - *last >= limit : has_lost(query);
  return is_gone ? claim_answer::gone : claim_answer::vacant;
}

claim_answer world_router::answer_by_worlds(const claim_query& query) {
  if (query.epoch == 0) {
    return holder_of(query.name, query.rank, nullptr) ? claim_answer::held
                                                      : claim_answer::vacant;
  }
  for (const auto& w : snapshot()) {
    if (w->state() != world_state::up || w->options().name != query.name) continue;
    // Survivors may have given it another rank, and an epoch that is not in the store.
    const rank_t rank = w->view().rank_of(query.holder);
    const bool is_that_epoch =
        w->inherits() ? w->epoch() > query.epoch : w->epoch() == query.epoch;
    if (rank == no_rank || !is_that_epoch) continue;
    // A member does not judge itself.
    if (rank == w->options().rank) return claim_answer::held;
    const auto& l = w->members().links()[static_cast<std::size_t>(rank)];
    if (l && l->is_up() && !w->members().is_suspect(rank)) return claim_answer::held;
    w->break_with(w->describe_failure(cause::replaced, rank, operation_kind::none,
                                      "another process joins with its rank"));
    return claim_answer::gone;
  }
  return claim_answer::vacant;
}

bool world_router::has_lost(const claim_query& query) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(ended_.begin(), ended_.end(), [&](const ended_world& each) {
    return each.epoch == query.epoch && each.name == query.name &&
           each.lost == query.holder;
  });
}

void world_router::examine_silence(time_point now) noexcept {
  MW_ASSERT(service_.is_current(), "silence is judged on the service reactor");
  std::erase_if(early_, [&](const auto& e) { return now - e.since > early_limit; });
  if (now < next_examination_) return;
  next_examination_ = time_point::max();
  for (const auto& w : snapshot())
    next_examination_ = std::min(next_examination_, w->examine_silence(now));
}

void world_router::log(log_level level, std::string line) noexcept {
  runtime_.log(level, line);
}

}  // namespace manyworlds::inline v0::detail
