// Local places: how a worker that is a thread of this process hands over what its
// registers hold.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "manyworlds/detail/remote_callable.hpp"

namespace manyworlds::inline v0::detail {

/// Where one `session::local` finds what it asked for.
class local_place {
 public:
  explicit local_place(type_token wanted) noexcept : wanted_(wanted) {}

  /// Keeps a share of the value. Errors: value_error if it is of another type.
  void fill(const held_value& held) {
    check_type(held, wanted_);
    const std::lock_guard lock(mutex_);
    value_ = held.value;
  }
  /// Returns it; null if no worker of this process has filled this.
  [[nodiscard]] std::shared_ptr<void> take() noexcept {
    const std::lock_guard lock(mutex_);
    return std::move(value_);
  }

 private:
  const type_token wanted_;
  std::mutex mutex_;
  std::shared_ptr<void> value_;  // guarded by mutex_
};

/// The places that calls are to fill, by the numbers of the calls. An address never
/// stands in a message, which another process could have written: only a worker that was
/// given this object can fill a place of it. Thread: any.
class local_places {
 public:
  /// Expects that the call fills the place, as long as that lives.
  void expect(std::uint64_t call, const std::shared_ptr<local_place>& place) {
    const std::lock_guard lock(mutex_);
    std::erase_if(expected_, [](const auto& each) { return each.second.expired(); });
    expected_.emplace(call, place);
  }
  /// Does nothing if the call is to fill none, or was given up. Errors: those of
  /// `local_place::fill`.
  void fill(std::uint64_t call, const held_value& held) {
    if (const std::shared_ptr<local_place> place = find(call)) place->fill(held);
  }

  // A command, and its reply, order what one thread has done to a value before what the
  // other does. They travel through memory that is mapped at two addresses, which tools
  // that look for races cannot follow: these two, around each message, they can.
  void hand_over() noexcept { turns_.fetch_add(1, std::memory_order_release); }
  void take_over() noexcept { static_cast<void>(turns_.load(std::memory_order_acquire)); }

 private:
  [[nodiscard]] std::shared_ptr<local_place> find(std::uint64_t call) {
    const std::lock_guard lock(mutex_);
    const auto at = expected_.find(call);
    return at == expected_.end() ? nullptr : at->second.lock();
  }

  std::mutex mutex_;
  // Guarded by mutex_.
  std::map<std::uint64_t, std::weak_ptr<local_place>> expected_;
  std::atomic<std::uint64_t> turns_{0};
};

}  // namespace manyworlds::inline v0::detail
