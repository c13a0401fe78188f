#include "nccl/launch_order.hpp"

#include <algorithm>
#include <utility>

namespace manyworlds::inline v0::detail::nccl {

std::shared_ptr<launch_order> launch_order::of(int ordinal) {
  // Never destroyed: threads that were left behind may give turns up at any time.
  static auto& mutex = *new std::mutex;
  static auto& orders = *new std::map<int, std::shared_ptr<launch_order>>;
  const std::lock_guard lock(mutex);
  auto& found = orders[ordinal];
  if (!found) found = std::make_shared<launch_order>();
  return found;
}

bool launch_order::may_go(const place_key& key, const place& what) const {
  if (!what.is_decided) return false;
  if (handed_ == 0 || key.operation == last_handed_) return true;
  return !what.is_alone && !is_held_alone_ && handed_lane_ &&
         seats_.at(key.seat).lane == handed_lane_;
}

bool launch_order::is_credible(time at) const {
  return at > 0 && at <= last && (at <= clock_ || at - clock_ <= farthest);
}

void launch_order::tell_turns(std::uint64_t own) {
  for (auto at = waiting_.begin();
       at != waiting_.end() && at->first.operation == waiting_.begin()->first.operation;
       ++at) {
    if (!may_go(at->first, at->second)) return;
    if (std::exchange(at->second.is_told, true) || at->first.seat == own) continue;
    seats_.at(at->first.seat).changed();
  }
}

void launch_order::tell_others(std::uint64_t own) {
  for (const auto& [id, each] : seats_) {
    if (id != own) each.changed();
  }
}

void launch_order::give_up(std::uint64_t seat, std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = seats_.find(seat);
  if (found == seats_.end() || found->second.handed.erase(number) == 0) return;
  if (--handed_ == 0) is_held_alone_ = false;
  tell_turns();
}

void launch_order::leave(std::uint64_t seat) {
  const std::lock_guard lock(mutex_);
  const auto found = seats_.find(seat);
  for (const auto& [number, at] : found->second.places) waiting_.erase({at, seat});
  handed_ -= found->second.handed.size();
  if (handed_ == 0) is_held_alone_ = false;
  seats_.erase(found);
  tell_turns();
  // They may have waited until this one is orderly.
  tell_others(seat);
}

order_seat::order_seat(std::shared_ptr<launch_order> order, const void* lane,
                       std::function<void()> changed)
    : order_(std::move(order)) {
  const std::lock_guard lock(order_->mutex_);
  id_ = ++order_->last_seat_;
  auto& own = order_->seats_[id_];
  own.lane = lane;
  own.changed = std::move(changed);
  order_->tell_others(id_);
}

order_seat::~order_seat() { order_->leave(id_); }

void order_seat::set_world(std::uint64_t world) {
  const std::lock_guard lock(order_->mutex_);
  order_->seats_.at(id_).world = world;
}

std::size_t order_seat::seats() const {
  const std::lock_guard lock(order_->mutex_);
  return order_->seats_.size();
}

void order_seat::set_orderly() {
  const std::lock_guard lock(order_->mutex_);
  order_->seats_.at(id_).is_orderly = true;
  order_->tell_others(id_);
}

bool order_seat::are_others_orderly() const {
  const std::lock_guard lock(order_->mutex_);
  return std::all_of(
      order_->seats_.begin(), order_->seats_.end(),
      [this](const auto& each) { return each.first == id_ || each.second.is_orderly; });
}

launch_order::time order_seat::promise(std::uint64_t number) {
  const std::lock_guard lock(order_->mutex_);
  auto& own = order_->seats_.at(id_);
  const launch_order::rank_in_order at{++order_->clock_, own.world, number};
  own.places[number] = at;
  order_->waiting_[{at, id_}] = {};
  return at.at;
}

order_seat::ruling order_seat::decide(std::uint64_t number, launch_order::time at,
                                      launch_kind kind) {
  const std::lock_guard lock(order_->mutex_);
  auto& own = order_->seats_.at(id_);
  const auto found = own.places.find(number);
  if (found == own.places.end()) return ruling::not_promised;
  const auto before = order_->waiting_.find({found->second, id_});
  if (before->second.is_decided) return ruling::not_promised;
  if (at < found->second.at) return ruling::too_early;
  if (!order_->is_credible(at)) return ruling::too_far;
  order_->clock_ = std::max(order_->clock_, at);
  order_->waiting_.erase(before);
  found->second.at = at;
  launch_order::place decided;
  decided.is_decided = true;
  decided.is_alone = kind == launch_kind::connecting;
  order_->waiting_[{found->second, id_}] = decided;
  order_->tell_turns(id_);
  return ruling::accepted;
}

void order_seat::forget(std::uint64_t number) {
  const std::lock_guard lock(order_->mutex_);
  auto& own = order_->seats_.at(id_);
  const auto found = own.places.find(number);
  if (found == own.places.end()) return;
  order_->waiting_.erase({found->second, id_});
  own.places.erase(found);
  order_->tell_turns(id_);
}

bool order_seat::is_credible(launch_order::time at) const {
  const std::lock_guard lock(order_->mutex_);
  return order_->is_credible(at);
}

std::optional<std::uint64_t> order_seat::next_turn() const {
  const std::lock_guard lock(order_->mutex_);
  const auto& waiting = order_->waiting_;
  for (auto at = waiting.begin();
       at != waiting.end() && at->first.operation == waiting.begin()->first.operation;
       ++at) {
    if (at->first.seat != id_) continue;
    if (!order_->may_go(at->first, at->second)) return std::nullopt;
    return at->first.operation.number;
  }
  return std::nullopt;
}

launch_turn order_seat::take(std::uint64_t number) {
  const std::lock_guard lock(order_->mutex_);
  auto& own = order_->seats_.at(id_);
  const auto found = own.places.find(number);
  const launch_order::rank_in_order at = found->second;
  const auto place = order_->waiting_.find({at, id_});
  order_->is_held_alone_ = place->second.is_alone;
  order_->waiting_.erase(place);
  own.places.erase(found);
  own.handed[number] = at;
  // Two members of one operation may be of different lanes: then all others wait for
  // both.
  const bool is_same_lane = order_->handed_ == 0 || order_->handed_lane_ == own.lane;
  order_->handed_lane_ = is_same_lane ? own.lane : nullptr;
  ++order_->handed_;
  order_->last_handed_ = at;
  order_->tell_turns(id_);
  return {order_, id_, number};
}

std::size_t order_seat::places() const {
  const std::lock_guard lock(order_->mutex_);
  const auto& own = order_->seats_.at(id_);
  return own.places.size() + own.handed.size();
}

}  // namespace manyworlds::inline v0::detail::nccl
