#include "nccl/member_turns.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <utility>

#include "nccl/launch_leader.hpp"

namespace manyworlds::inline v0::detail::nccl {

namespace {

using namespace std::chrono_literals;

/// A promise that stays undecided for so long holds up the GPU's other worlds: rank 0
/// decides or retracts it much earlier, unless it stands still.
constexpr duration longest_promise = 10s;

/// CUDA programming guide, "CUDA environment variables".
constexpr const char* connections_variable = "CUDA_DEVICE_MAX_CONNECTIONS";
[[nodiscard]] std::size_t connections() noexcept {
  constexpr int usual = 8;
  constexpr int most = 32;
  const char* const set = std::getenv(connections_variable);
  const int number = set ? std::atoi(set) : usual;
  return static_cast<std::size_t>(std::clamp(number, 1, most));
}

}  // namespace

void member_turns::start(std::function<void()> changed) {
  if (member_.size < 2) return;
  wakeup_ = std::make_shared<turn_wakeup>(member_.home, std::move(changed));
  // What the reactor launches is launched when it has been handed over.
  seat_.emplace(launch_order::of(member_.device->ordinal()),
                member_.launches_on_reactor() ? nullptr : &member_.device->launching(),
                [wakeup = wakeup_] { wakeup->wake(); });
}

void member_turns::stop() noexcept {
  connecting_.reset();
  if (!seat_) return;
  wakeup_->drop();
  seat_.reset();
}

void member_turns::tell_changes() {
  if (!seat_) return;
  tell_crowd();
  tell_made();
}

void member_turns::tell_crowd() {
  if (is_crowd_known_ || !seat_->is_crowded()) return;
  is_crowd_known_ = true;
  mail_.say_to_leader(crowded_message{});
}

void member_turns::note_made() {
  is_made_ = true;
  tell_made();
}

void member_turns::tell_made() {
  if (!is_made_ || is_made_known_ || !seat_ || !seat_->are_others_orderly()) return;
  is_made_known_ = true;
  mail_.say_to_leader(made_message{});
}

void member_turns::note_orderly() {
  if (is_orderly_ || !seat_) return;
  // Without rank 0 nothing is launched that is not yet.
  if (!are_used_ && !member_.has_leader_left()) return;
  if (connects_without_ && !member_.is_open && !member_.never_opens) return;
  if (launches_.has_placeless()) return;
  is_orderly_ = true;
  seat_->set_orderly();
  answer_proposals();
}

// What has its turn must be launched at once, since the GPU's other worlds wait for it.
bool member_turns::may_promise() const noexcept {
  if (member_.is_over || is_retired_ || !seat_) return false;
  // The first proposal is that to connect the peers.
  if (!may_connect_) return is_made_known_;
  return member_.is_open && is_orderly_ && !launches_.is_memory_in_doubt();
}

void member_turns::answer_proposals() {
  while (!unanswered_.empty() && may_promise()) {
    const std::uint64_t number = unanswered_.front();
    unanswered_.pop_front();
    undecided_[number] = member_.home.now();
    mail_.say_to_leader(promise_message{number, seat_->promise(number)});
  }
}

void member_turns::hear(const places_message&) {
  if (std::exchange(are_used_, true)) throw wire_error("places out of turn");
  note_orderly();
}

void member_turns::hear(const propose_message& m) {
  if (m.number <= last_proposal_) throw wire_error("a proposal out of turn");
  if (unanswered_.size() + undecided_.size() >= launch_leader::most_proposed) {
    throw wire_error("more proposals than are made at a time");
  }
  last_proposal_ = m.number;
  unanswered_.push_back(m.number);
  answer_proposals();
}

void member_turns::hear(const retract_message& m) {
  // All promises are forgotten.
  if (is_retired_) return;
  if (std::erase(unanswered_, m.number) > 0) return;
  if (undecided_.erase(m.number) == 0) {
    throw wire_error("a retraction of what was not proposed");
  }
  if (seat_) seat_->forget(m.number);
}

void member_turns::hear(const connect_message& m) {
  if (!is_made_known_ || std::exchange(may_connect_, true)) {
    throw wire_error("to connect the peers out of turn");
  }
  if (m.place.is_none()) {
    if (are_used_) throw wire_error("to connect the peers without a place");
    connects_without_ = true;
    return communicator_.connect({});
  }
  accept(m.place, launch_kind::connecting);
  connecting_ = m.place.number;
}

void member_turns::accept(const launch_place& place, launch_kind kind) {
  using ruling = order_seat::ruling;
  if (!seat_ || undecided_.erase(place.number) == 0) {
    throw wire_error("a place that was not promised");
  }
  if (seat_->decide(place.number, place.time, kind) != ruling::accepted) {
    throw wire_error(fmt::format(
        "a place at time {}, before what was promised or far from it", place.time));
  }
}

void member_turns::enqueue(device_job& job, const launch_place& place) {
  const bool is_change = changes_memory(job.launch->kind);
  if (place.is_none()) {
    job.is_placeless = !is_change;
    if (job.is_placeless && are_used_) throw wire_error("a launch without a place");
    return launches_.enqueue(job);
  }
  if (is_change) throw wire_error("a place for what launches nothing");
  // An honest rank 0 decides nothing of the kind: it asks all members first, and none
  // promises what it could not launch.
  if (!member_.is_open || launches_.is_memory_in_doubt()) {
    throw wire_error("a place for what cannot be launched");
  }
  accept(place, launch_kind::operation);
  launches_.hold(place.number, job);
}

// It is not refused: refused at one member, it would leave the other's kernel waiting,
// which is what the refusal would be for.
void member_turns::note_unordered() {
  if (has_warned_ || !is_crowd_known_ || !seat_) return;
  const std::size_t worlds = seat_->seats();
  if (worlds <= connections()) return;
  has_warned_ = true;
  member_.events.log(
      log_level::warning,
      fmt::format(
          "{} worlds share the {} connections of device {}, where an unmatched "
          "operation may wait for another world's without end: set {}=32 before CUDA "
          "starts, or start such operations in one order at all members, and none "
          "while another world connects or has an operation in flight",
          worlds, connections(), member_.device->ordinal(), connections_variable));
}

void member_turns::take_turns() noexcept {
  while (!member_.is_over && seat_ && (launches_.has_held() || connecting_)) {
    const auto number = seat_->next_turn();
    if (!number) return;
    launch_turn turn = seat_->take(*number);
    if (connecting_ == *number) {
      connecting_.reset();
      communicator_.connect(std::move(turn));
      continue;
    }
    launches_.launch_held(*number, std::move(turn));
  }
}

void member_turns::forget_promises() {
  unanswered_.clear();
  for (const auto& [number, since] : std::exchange(undecided_, {})) {
    if (seat_) seat_->forget(number);
  }
  note_orderly();
}

void member_turns::retire() {
  is_retired_ = true;
  forget_promises();
}

void member_turns::watch(time_point now) noexcept {
  if (undecided_.empty()) return;
  // Numbers grow with time.
  const auto [number, promised] = *undecided_.begin();
  const duration since = now - promised;
  if (since <= longest_promise) return;
  // A member that stood still itself first reads the messages that came meanwhile.
  if (std::exchange(overdue_, number) != number) return;
  member_.break_world(
      0, cause::overdue,
      fmt::format("rank 0 has not decided for {} s when an operation is launched; this "
                  "holds up the other worlds on device {}",
                  std::chrono::duration_cast<std::chrono::seconds>(since).count(),
                  member_.device->ordinal()));
}

}  // namespace manyworlds::inline v0::detail::nccl
