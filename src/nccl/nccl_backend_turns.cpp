// A member's side of the common order of launches (launch_order.hpp): promises, places
// and turns.
#include <fmt/format.h>

#include <algorithm>

#include "nccl_backend.hpp"

namespace manyworlds::inline v0::nccl {

namespace {

using namespace std::chrono_literals;

/// A promise that stays undecided for so long holds up the GPU's other worlds: rank 0
/// decides or retracts it much earlier, unless it stands still.
constexpr duration longest_promise = 10s;

}  // namespace

void nccl_backend::take_seat() {
  if (size_ < 2) return;
  places_.bell = std::make_shared<turn_bell>(home_, [this] { order_changed(); });
  // What the reactor launches is launched when `hand_over` returns.
  const bool is_posted = options_.device.launch == launch_on::own_thread;
  places_.seat.emplace(launch_order::of(device_->ordinal()),
                       is_posted ? &device_->launching() : nullptr,
                       [bell = places_.bell] { bell->ring(); });
}

void nccl_backend::leave_order() noexcept {
  home_.timers().disarm(order_timer_);
  if (leader_) leader_->stop();
  give_seat_back();
}

// This world launches nothing any more and must not hold up the GPU's other worlds.
void nccl_backend::give_seat_back() noexcept {
  places_.connecting.reset();
  if (!places_.seat) return;
  places_.bell->drop();
  places_.seat.reset();
}

void nccl_backend::order_changed() noexcept {
  if (stopping_ || !places_.seat) return;
  guarded([this] {
    tell_crowd();
    tell_made();
  });
  pump();
}

void nccl_backend::tell_crowd() {
  if (places_.is_crowd_known || !places_.seat->is_crowded()) return;
  places_.is_crowd_known = true;
  if (self_ != 0) return say(0, crowded_message{});
  leader_->use_places();
}

void nccl_backend::communicator_stands() noexcept {
  if (stopping_) return;
  places_.is_made = true;
  guarded([this] { tell_made(); });
}

// The first kernels of a world start when no other world on its GPUs has any that were
// launched without a place.
void nccl_backend::tell_made() {
  if (!places_.is_made || places_.is_made_known || !places_.seat ||
      !places_.seat->are_others_orderly()) {
    return;
  }
  places_.is_made_known = true;
  if (self_ != 0) return say(0, made_message{});
  leader_->hear_made(0, home_.now());
}

void nccl_backend::note_orderly() {
  if (places_.is_orderly || !places_.seat) return;
  // Without rank 0 nothing is launched that is not yet.
  if (!places_.are_used && !left_[0]) return;
  if (places_.connects_without && !is_open_ && !never_opens_) return;
  const auto is_without = [](const device_job* each) { return each->is_placeless; };
  if (std::any_of(queue_.begin(), queue_.end(), is_without) ||
      std::any_of(in_flight_.begin(), in_flight_.end(), is_without)) {
    return;
  }
  places_.is_orderly = true;
  places_.seat->set_orderly();
  answer_proposals();
}

// What has its turn must be launched at once, since the GPU's other worlds wait for it.
bool nccl_backend::may_promise() const noexcept {
  if (stopping_ || host_leaves_ || !places_.seat) return false;
  // The first proposal is that to connect the peers.
  if (!places_.may_connect) return places_.is_made_known;
  if (!is_open_ || !places_.is_orderly || changing_ || memory_is_away_) return false;
  return std::none_of(queue_.begin(), queue_.end(), [](const device_job* each) {
    return changes_memory(each->launch->kind);
  });
}

void nccl_backend::answer_proposals() {
  while (!places_.unanswered.empty() && may_promise()) {
    const std::uint64_t number = places_.unanswered.front();
    places_.unanswered.pop_front();
    places_.undecided[number] = home_.now();
    const promise_message promise{number, places_.seat->promise(number)};
    if (self_ == 0) {
      leader_->hear_promise(0, promise, home_.now());
    } else {
      say(0, promise);
    }
  }
}

void nccl_backend::handle(rank_t from, const made_message&) {
  if (self_ != 0) throw wire_error("a communicator made, said to another than rank 0");
  leader_->hear_made(from, home_.now());
}

void nccl_backend::handle(rank_t, const crowded_message&) {
  if (self_ != 0) throw wire_error("a crowded GPU, said to another than rank 0");
  leader_->use_places();
}

void nccl_backend::handle(rank_t from, const places_message&) {
  only_from_leader(from);
  if (std::exchange(places_.are_used, true)) throw wire_error("places out of turn");
  note_orderly();
}

void nccl_backend::handle(rank_t from, const propose_message& m) {
  only_from_leader(from);
  if (m.number <= places_.last_proposal) throw wire_error("a proposal out of turn");
  if (places_.unanswered.size() + places_.undecided.size() >=
      launch_leader::most_proposed) {
    throw wire_error("more proposals than are made at a time");
  }
  places_.last_proposal = m.number;
  places_.unanswered.push_back(m.number);
  answer_proposals();
}

void nccl_backend::handle(rank_t from, const promise_message& m) {
  if (self_ != 0) throw wire_error("a promise to another than rank 0");
  leader_->hear_promise(from, m, home_.now());
}

void nccl_backend::handle(rank_t from, const retract_message& m) {
  only_from_leader(from);
  // All promises are forgotten.
  if (host_leaves_) return;
  if (std::erase(places_.unanswered, m.number) > 0) return;
  if (places_.undecided.erase(m.number) == 0) {
    throw wire_error("a retraction of what was not proposed");
  }
  if (places_.seat) places_.seat->forget(m.number);
  pump();
  go_if_idle();
}

void nccl_backend::handle(rank_t from, const connect_message& m) {
  only_from_leader(from);
  if (!places_.is_made_known || std::exchange(places_.may_connect, true)) {
    throw wire_error("to connect the peers out of turn");
  }
  if (m.place.is_none()) {
    if (places_.are_used) throw wire_error("to connect the peers without a place");
    places_.connects_without = true;
    return communicator_->connect({});
  }
  accept(m.place, launch_kind::connecting);
  places_.connecting = m.place.number;
  pump();
}

void nccl_backend::accept(const launch_place& place, launch_kind kind) {
  using ruling = order_seat::ruling;
  if (!places_.seat || places_.undecided.erase(place.number) == 0) {
    throw wire_error("a place that was not promised");
  }
  if (places_.seat->decide(place.number, place.time, kind) != ruling::accepted) {
    throw wire_error(fmt::format(
        "a place at time {}, before what was promised or far from it", place.time));
  }
}

// Matched, and its place is known, unless this world has none.
void nccl_backend::enqueue_matched(device_job& job, const launch_place& place) {
  if (place.is_none()) {
    job.is_placeless = !changes_memory(job.launch->kind);
    if (job.is_placeless && places_.are_used)
      throw wire_error("a launch without a place");
    return enqueue(job);
  }
  if (changes_memory(job.launch->kind)) {
    throw wire_error("a place for what launches nothing");
  }
  accept(place, launch_kind::operation);
  job.stage = job_stage::queued;
  places_.decided[place.number] = &job;
  pump();
}

void nccl_backend::take_turns() noexcept {
  while (!stopping_ && places_.seat && (!places_.decided.empty() || places_.connecting)) {
    const auto number = places_.seat->next_turn();
    if (!number) return;
    launch_turn turn = places_.seat->take(*number);
    if (places_.connecting == *number) {
      places_.connecting.reset();
      communicator_->connect(std::move(turn));
      continue;
    }
    const auto found = places_.decided.find(*number);
    // There was no memory to note it, and the world ends.
    if (found == places_.decided.end()) continue;
    device_job& job = *found->second;
    places_.decided.erase(found);
    job.launch->turn = std::move(turn);
    guarded([&] { hand_over(job); });
  }
}

// What is decided is launched all the same.
void nccl_backend::forget_promises() {
  places_.unanswered.clear();
  for (const auto& [number, since] : std::exchange(places_.undecided, {})) {
    if (places_.seat) places_.seat->forget(number);
  }
  note_orderly();
  pump();
}

void nccl_backend::watch_order(time_point now) noexcept {
  if (!places_.undecided.empty()) {
    // Numbers grow with time.
    const auto [number, promised] = *places_.undecided.begin();
    const duration since = now - promised;
    // A member that stood still itself first reads the messages that came meanwhile.
    if (since > longest_promise && std::exchange(places_.overdue, number) == number) {
      return break_world(
          0, cause::overdue,
          fmt::format("rank 0 has not decided for {} s when an operation is launched, "
                      "which holds up the other worlds on device {}",
                      std::chrono::duration_cast<std::chrono::seconds>(since).count(),
                      device_->ordinal()));
    }
  }
  if (!leader_) return;
  if (const auto late = leader_->oldest_unplaced(now, options_.host.collective_break)) {
    break_world(
        late->silent, cause::stalled,
        fmt::format(
            "rank {} has not answered for {} s when an operation can be launched",
            late->silent,
            std::chrono::duration_cast<std::chrono::seconds>(late->since).count()));
  }
}

// --- rank 0

void nccl_backend::tell(rank_t whom, const order_message& message) {
  if (stopping_) return;
  if (std::holds_alternative<propose_message>(message)) look_after(leader_->due());
  if (whom != self_) return say(whom, message);
  own_orders_.add(message);
  (void)hear_own_orders();
}

bool nccl_backend::hear_own_orders() {
  // What is heard may tell something in turn: it comes behind.
  if (std::exchange(hears_own_, true)) return false;
  bool any = false;
  while (!stopping_) {
    const std::optional<order_message> next = own_orders_.take();
    if (!next) break;
    any = true;
    std::visit([this](const auto& m) { handle(0, m); }, *next);
  }
  hears_own_ = false;
  if (!own_orders_.empty() && !stopping_) start_polling();
  return any;
}

void nccl_backend::accuse(rank_t whom, enum cause why, std::string detail) {
  break_world(whom, why, std::move(detail));
}

bool nccl_backend::is_credible(std::uint64_t time) const {
  return !places_.seat || places_.seat->is_credible(time);
}

void nccl_backend::look_after(std::optional<time_point> due) noexcept {
  if (!due || (order_timer_.is_armed() && order_timer_.when() <= *due)) return;
  home_.timers().disarm(order_timer_);
  home_.timers().arm(order_timer_, *due);
}

void nccl_backend::order_timer_expired() noexcept {
  if (stopping_) return;
  guarded([this] { leader_->tick(home_.now()); });
  if (!stopping_) look_after(leader_->due());
}

}  // namespace manyworlds::inline v0::nccl
