// File sleep: what the thread of a file store sleeps in, until files change.
#pragma once

#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <string>

#include "io/descriptor.hpp"
#include "manyworlds/coro/event.hpp"
#include "store/store_thread.hpp"

namespace manyworlds::inline v0::detail {

/// Sleeps until a wake-up or until the kernel tells of a change in the folder. Thread:
/// the store's, but for `wake` and the constructor.
class file_sleep final : public store_sleep {
 public:
  /// Without room for another inotify instance no changes are told; waits then look
  /// periodically.
  file_sleep(bool watches, const std::string& keys, const std::string& queues) {
    if (!watches) return;
    notices_ = unique_descriptor(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
    tells_ = notices_ && is_watched(keys, IN_MOVED_TO) && is_watched(queues, IN_ATTRIB);
  }

  /// Returns whether the kernel tells of changes.
  [[nodiscard]] bool tells() const noexcept { return tells_; }
  /// Is set for a moment at each change.
  [[nodiscard]] event& changed() noexcept { return changed_; }

  void sleep(duration at_most) noexcept override {
    std::array<pollfd, 2> waited = {pollfd{woken_.fd(), POLLIN, 0},
                                    pollfd{notices_.get(), POLLIN, 0}};
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(at_most).count();
    if (::poll(waited.data(), waited.size(), static_cast<int>(ms)) <= 0) return;
    woken_.clear();
    if ((waited[1].revents & POLLIN) == 0) return;
    std::array<char, 16 * 1024> notices;
    while (::read(notices_.get(), notices.data(), notices.size()) > 0) {}
    changed_.set();
    changed_.reset();
  }
  void wake() noexcept override { woken_.give(); }

 private:
  [[nodiscard]] bool is_watched(const std::string& folder, std::uint32_t of) noexcept {
    return ::inotify_add_watch(notices_.get(), folder.c_str(), of) >= 0;
  }

  event_counter woken_;
  unique_descriptor notices_;
  bool tells_ = false;
  event changed_;
};

}  // namespace manyworlds::inline v0::detail
