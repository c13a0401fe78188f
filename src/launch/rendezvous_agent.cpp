#include "launch/rendezvous_agent.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "duration_text.hpp"
#include "launch/notice_board.hpp"
#include "launch/rendezvous_backends.hpp"
#include "launch/torchrun_keys.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/serve/connect.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0 {

namespace {

/// How long a coordinator that has left waits for its last words to go, where another
/// agent takes its seat.
constexpr duration last_words = std::chrono::milliseconds(50);
/// How long an agent that has ended tries to say so.
constexpr duration farewell = std::chrono::seconds(1);
/// The pause after an error of the backend's store.
constexpr duration seat_pause = std::chrono::milliseconds(100);
/// An agent that wakes later than this was stopped, or had no CPU.
constexpr duration own_pause = std::chrono::milliseconds(200);
constexpr std::size_t most_nodes_of_run = 4096;
constexpr std::size_t longest_run_id = 40;

[[noreturn]] void refuse_options(std::string text) {
  throw rendezvous_error(rendezvous_error_kind::bad_options,
                         "rendezvous: " + std::move(text));
}

rendezvous_options checked_rendezvous(rendezvous_options o) {
  if (!is_plain_name(o.run_id, longest_run_id)) {
    refuse_options(fmt::format(
        "the run id \"{:.80}\" is not 1 to {} letters, digits, '-', '_' or '.'", o.run_id,
        longest_run_id));
  }
  if (o.limits.min_nodes == 0 || o.limits.min_nodes > o.limits.max_nodes ||
      o.limits.max_nodes > most_nodes_of_run) {
    refuse_options(fmt::format("{} to {} nodes are no range within 1 to {}",
                               o.limits.min_nodes, o.limits.max_nodes,
                               most_nodes_of_run));
  }
  if (o.limits.silence <= duration::zero())
    refuse_options("a silence of " + duration_text(o.limits.silence));
  // A last call waits for nodes that may come.
  if (o.limits.min_nodes == o.limits.max_nodes) o.limits.last_call = duration::zero();
  return o;
}

node_description checked_node(runtime& rt, node_description node) {
  if (node.id.empty()) {
    runtime_core& core = access::core(rt);
    node.id = fmt::format("{:016x}{:016x}", core.random_word(), core.random_word());
  }
  const std::string wrong = wrong_with(node);
  if (!wrong.empty()) refuse_options(wrong);
  return node;
}

}  // namespace

rendezvous::agent::agent(runtime& rt, rendezvous_options options, node_description self)
    : runtime_(rt),
      options_(checked_rendezvous(std::move(options))),
      backend_(make_backend(rt, options_)) {
  said_.node = checked_node(rt, std::move(self));
  said_.min_nodes = options_.limits.min_nodes;
  said_.max_nodes = options_.limits.max_nodes;
  said_.place = backend_->place();
  // The others would take it for a node without an agent of ours.
  if (said_.place && said_.node.id.starts_with(torchrun_id))
    refuse_options("a node's id begins with " + std::string(torchrun_id));
}

task<void> rendezvous::agent::run(task<void> body) {
  co_await scope::run([&](scope& s) -> task<void> {
    s.spawn(take_part());
    co_await std::move(body);
    co_await leave(departure::finished);
    s.cancel();
  });
}

/// Coordinates when it has the seat, and is connected to the coordinator otherwise.
task<void> rendezvous::agent::take_part() {
  for (;;) {
    std::unique_ptr<coordinator_seat> seat;
    {
      auto first = co_await when_any(take_seat(), keep_connected());
      if (std::get<0>(first)) seat = std::move(*std::get<0>(first));
    }
    // Connecting ends when the runtime stops, and so does our part.
    if (runtime_.is_stopping()) co_return;
    if (!seat) continue;
    coordinates_ = true;
    co_await coordinate(*seat);
    coordinates_ = false;
    note_loss();
    // A node that has left leaves the seat to others.
    if (said_.has_left) {
      was_told_.set();
      co_return;
    }
  }
}

/// Waits for the seat; once this node has left it waits until cancelled. A store that
/// does not answer is asked again: the world with the coordinator, beside this, does not
/// need it.
task<std::unique_ptr<coordinator_seat>> rendezvous::agent::take_seat() {
  for (bool is_told = false;;) {
    std::unique_ptr<coordinator_seat> seat;
    try {
      seat = co_await backend_->take_seat(said_.node);
    } catch (const store_error& e) {
      if (!std::exchange(is_told, true))
        access::core(runtime_).log(log_level::warning, e.what());
    }
    if (seat && !said_.has_left) co_return seat;
    const bool has_failed = seat == nullptr;
    seat = nullptr;
    co_await sleep_for(has_failed ? seat_pause : duration::max());
  }
}

task<void> rendezvous::agent::coordinate(coordinator_seat& seat) {
  coordinator decides(runtime_, *backend_, seat, options_, id());
  co_await scope::run([&](scope& s) -> task<void> {
    s.spawn([&]() -> task<void> {
      co_await decides.run();
      s.cancel();
    });
    coordinator::session own(decides);
    note_contact();
    co_await talk_here(own);
    // The others hear of the departure from us, and may still need a coordinator.
    auto all_gone = [&]() -> task<void> { co_await decides.until_agents(1); };
    co_await when_any(
        all_gone(),
        sleep_for(backend_->has_successors() ? last_words : options_.limits.close));
    if (decides.agents() <= 1) co_await decides.leave_nothing();
    s.cancel();
  });
}

/// Talks to the coordinator in this process, until this node has left.
task<void> rendezvous::agent::talk_here(coordinator::session& s) {
  to_say_.set();
  for (;;) {
    co_await when_any(to_say_.wait(), s.changed().wait());
    if (to_say_.is_set()) {
      to_say_.reset();
      s.hear(said_);
      if (!said_.has_left) was_told_.set();
    }
    if (said_.has_left) co_return;
    if (s.changed().is_set()) {
      s.changed().reset();
      hear(s.words());
    }
  }
}

task<void> rendezvous::agent::keep_connected() {
  connect_options where;
  where.service = rendezvous_service(options_.run_id);
  where.world = world_of_two(options_.limits);
  auto body = [this](world& w) -> task<void> { return talk(w); };
  co_await connect(runtime_, backend_->meeting_place(), where, body,
                   after_close::form_again);
}

/// Talks to the coordinator until the world with it breaks.
task<void> rendezvous::agent::talk(world& w) {
  auto telling = [&]() -> task<void> {
    to_say_.set();
    for (;;) {
      co_await to_say_;
      to_say_.reset();
      co_await say(w, said_.encode());
      if (!to_say_.is_set()) was_told_.set();
    }
  };
  auto hearing = [&]() -> task<void> {
    for (;;) {
      const bytes message = co_await detail::hear(w);
      hear(coordinator_words::decode(message));
    }
  };
  // Until this coordinator says them, those of another one are known.
  heard_.seat.clear();
  heard_.node.clear();
  bool has_died = false;
  std::string why;
  std::exception_ptr error;
  try {
    co_await scope::run([&](scope& both) -> task<void> {
      both.spawn(telling());
      both.spawn(hearing());
      co_return;
    });
  } catch (const world_error& e) {
    has_died = e.failure().cause == cause::peer_died;
    why = e.what();
    error = std::current_exception();
  } catch (const std::exception& e) {
    why = e.what();
  }
  note_loss();
  if (has_died) {
    // Its successor would wait for the node of its process, as it does for all.
    if (!heard_.node.empty()) said_.died.insert(heard_.node);
    try {
      co_await backend_->coordinator_died(heard_.seat);
    } catch (const store_error& e) {
      access::core(runtime_).log(log_level::warning, e.what());
    }
  }
  // A message that was given up halfway, or that makes no sense, ends this world and no
  // more: the next connection says all anew.
  if (w.state() == world_state::up) {
    w.fail("the coordinator's words were lost: " + why);
    co_await detail::hear(w);
  }
  if (error) std::rethrow_exception(error);
}

// ---------------------------------------------------------------------------------------

void rendezvous::agent::wish() noexcept {
  was_told_.reset();
  to_say_.set();
}

void rendezvous::agent::note_contact() noexcept {
  has_been_connected_ = true;
  alone_since_.reset();
}

void rendezvous::agent::note_loss() {
  if (has_been_connected_ && !alone_since_) alone_since_ = runtime_.home().now();
  has_news_.set();
}

void rendezvous::agent::hear(const coordinator_words& said) {
  note_contact();
  heard_ = said;
  has_news_.set();
  if (said.closed) change_ = round_change::closed;
  was_open_ = was_open_ || !said.closed;
  if (said.last_round.empty()) return;
  const round stands = round::from_json(said.last_round);
  // A coordinator that was deposed, or knows less, decides nothing for us.
  if (stands.number < said_.highest) return;
  said_.highest = stands.number;
  const bool is_ours = round_ && said.last_round == said_.last_round;
  if (is_ours) said_.finished = said.finished;
  const bool is_later = !round_ || stands.number > round_->number;
  if (said_.has_left) return;
  if (is_later && stands.find(id())) {
    round_ = stands;
    said_.last_round = said.last_round;
    said_.finished = said.finished;
    said_.asks = false;
    said_.died.clear();
    said_.notice.clear();
    notices_.clear();
    has_new_notices_ = false;
    was_waiting_told_ = false;
    is_left_out_ = false;
    hear_notices(said);
    change_ = said.closed ? round_change::closed : said.change;
    // The coordinator knows that we ask no longer: it has placed us.
    return;
  }
  if (is_ours) hear_notices(said);
  if (change_ == round_change::closed) return;
  // A later round without us: we were taken for lost. So we were if a coordinator that
  // knew of no round has given the number of ours to another one.
  is_left_out_ = round_ && !is_ours;
  change_ = is_left_out_ ? round_change::node_lost : said.change;
}

void rendezvous::agent::hear_notices(const coordinator_words& said) {
  for (const auto& [node, text] : said.notices) {
    std::string& kept = notices_[node];
    if (kept == text) continue;
    kept = text;
    has_new_notices_ = true;
  }
}

task<bool> rendezvous::agent::news(time_point until) {
  if (!heard_.refusal.empty())
    throw error(rendezvous_error_kind::refused, heard_.refusal);
  const duration patience = backend_->patience();
  if (runtime_.home().now() >= until) co_return false;
  if (alone_since_) {
    const time_point end = later(*alone_since_, patience);
    if (runtime_.home().now() >= end) {
      throw error(rendezvous_error_kind::no_coordinator,
                  "the coordinator is gone, and no other was found within " +
                      duration_text(patience));
    }
    until = std::min(until, end);
  }
  has_news_.reset();
  co_await when_any(has_news_.wait(), sleep_until(until));
  // A process that was stopped has not looked for a coordinator: it begins anew (R4).
  const time_point now = runtime_.home().now();
  if (alone_since_ && now > until && now - until > own_pause) alone_since_ = now;
  co_return true;
}

task<round> rendezvous::agent::next() {
  MW_ASSERT(!said_.has_left, "a node that has left asks for no round");
  const std::uint64_t before = returned_;
  time_point until = later(runtime_.home().now(), options_.limits.join);
  // Asks no longer on every way out, also when it is cancelled.
  struct asking {
    explicit asking(agent& a) noexcept : self(a) {
      self.said_.asks = true;
      self.wish();
    }
    asking(const asking&) = delete;
    asking& operator=(const asking&) = delete;
    ~asking() {
      if (std::exchange(self.said_.asks, false)) self.wish();
    }
    agent& self;
  } const until_it_ends(*this);
  for (bool waits_beside = false;;) {
    if (change_ == round_change::closed) {
      throw error(rendezvous_error_kind::closed,
                  "the run is closed: no further round forms");
    }
    if (round_ && round_->number > before) {
      returned_ = round_->number;
      co_return *round_;
    }
    const bool is_in_time = co_await news(until);
    const bool was_spare = std::exchange(waits_beside, is_spare());
    if (!is_in_time && !was_spare && !waits_beside) break;
    // The limit counts from when the round that it waited beside is over.
    if (was_spare || waits_beside)
      until = later(runtime_.home().now(), options_.limits.join);
  }
  throw error(rendezvous_error_kind::timed_out,
              fmt::format("no round within {}: {}", duration_text(options_.limits.join),
                          what_is_missing()));
}

bool rendezvous::agent::is_spare() const {
  if (alone_since_ || heard_.last_round.empty()) return false;
  const round stands = round::from_json(heard_.last_round);
  return heard_.change == round_change::none && !stands.find(id()) &&
         stands.nodes.size() >= options_.limits.max_nodes;
}

std::string rendezvous::agent::what_is_missing() const {
  if (has_been_connected_) {
    return fmt::format("{} of at least {} nodes ask for one", heard_.asking,
                       options_.limits.min_nodes);
  }
  const store& place = backend_->meeting_place();
  const std::string trouble = place.trouble();
  return fmt::format("no coordinator was found through {}{}{}", place.address(),
                     trouble.empty() ? "" : ": ", trouble);
}

task<round_change> rendezvous::agent::changed() {
  for (;;) {
    const bool is_waiting = change_ == round_change::node_waits;
    if (change_ != round_change::none && !(is_waiting && was_waiting_told_)) {
      if (is_waiting) was_waiting_told_ = true;
      co_return change_;
    }
    co_await news(time_point::max());
  }
}

task<void> rendezvous::agent::left_out() {
  while (!is_left_out_) co_await news(time_point::max());
}

task<void> rendezvous::agent::post(std::string text) {
  if (text.size() > longest_notice)
    throw std::invalid_argument(fmt::format("a notice of {} bytes", text.size()));
  MW_ASSERT(round_, "a node tells the others of its round");
  said_.notice = std::move(text);
  wish();
  co_await when_any(was_told_.wait(), sleep_for(farewell));
}

task<std::map<std::string, std::string>> rendezvous::agent::posted() {
  while (!has_new_notices_) co_await news(time_point::max());
  has_new_notices_ = false;
  co_return notices_;
}

/// The wait may be given up and begun again: the departure is told once.
task<void> rendezvous::agent::leave(departure how) {
  const duration limit = coordinates_ ? options_.limits.close + farewell : farewell;
  const time_point until = later(runtime_.home().now(), limit);
  if (!said_.has_left && how == departure::finished) co_await finish(until);
  if (!said_.has_left) {
    said_.asks = false;
    said_.has_left = true;
    said_.how = how;
    wish();
  }
  co_await when_any(was_told_.wait(), sleep_until(until));
}

/// Tells those that are no agents of ours. They find out otherwise if it fails.
task<void> rendezvous::agent::finish(time_point until) {
  try {
    co_await within(backend_->finish(), until - runtime_.home().now());
  } catch (const timed_out&) {
    // The limit is the answer: the others are not waited for any longer.
  } catch (const store_error& e) {
    access::core(runtime_).log(log_level::warning, e.what());
  }
}

task<void> rendezvous::agent::close() {
  said_.closes = true;
  wish();
  const time_point until = later(runtime_.home().now(), options_.limits.close);
  while (change_ != round_change::closed) {
    const bool is_in_time = co_await news(until);
    if (is_in_time) continue;
    throw error(rendezvous_error_kind::no_coordinator,
                "no coordinator has confirmed within " +
                    duration_text(options_.limits.close) + " that the run is closed");
  }
}

rendezvous_error rendezvous::agent::error(rendezvous_error_kind kind,
                                          std::string_view text) const {
  return rendezvous_error(
      kind, fmt::format("rendezvous of run {}, node {} on {}: {}", options_.run_id, id(),
                        said_.node.host, text));
}

}  // namespace manyworlds::inline v0
