// Watched memory: buffers that are overwritten with a canary as soon as they are given
// back, and looked at later (law 4).
#pragma once

#include <cstddef>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "simulation/chronicle.hpp"

namespace manyworlds_tests {

using namespace std::chrono_literals;

class watched_memory {
 public:
  watched_memory(std::function<mw::time_point()> clock,
                 std::function<void(std::string)> complain)
      : clock_(std::move(clock)), complain_(std::move(complain)) {}
  watched_memory(const watched_memory&) = delete;
  watched_memory& operator=(const watched_memory&) = delete;

  void retire(std::unique_ptr<std::byte[]> bytes, std::size_t size, const char* what) {
    std::memset(bytes.get(), canary, size);
    held_ += size;
    retired_.push_back({std::move(bytes), size, clock_(), what});
    while (held_ > limit || retired_.size() > most) drop_oldest();
  }
  /// Looks at those that have been out of use for a while, and forgets them.
  void look(mw::duration age = 2s) {
    while (!retired_.empty() && clock_() - retired_.front().since >= age) drop_oldest();
  }

 private:
  static constexpr int canary = 0x5a;
  static constexpr std::size_t limit = std::size_t{4} << 20;
  static constexpr std::size_t most = 4096;

  struct retired {
    std::unique_ptr<std::byte[]> bytes;
    std::size_t size;
    mw::time_point since;
    const char* what;
  };

  void drop_oldest() {
    const retired r = std::move(retired_.front());
    retired_.pop_front();
    held_ -= r.size;
    // All bytes are the canary if the first is, and each is like the one before.
    const bool intact =
        r.size == 0 || (r.bytes[0] == std::byte{canary} &&
                        std::memcmp(r.bytes.get(), r.bytes.get() + 1, r.size - 1) == 0);
    if (!intact) {
      complain_("law 4: a buffer of " + std::to_string(r.size) + " bytes (" + r.what +
                ") was written after it was given back");
    }
  }

  std::function<mw::time_point()> clock_;
  std::function<void(std::string)> complain_;
  std::deque<retired> retired_;
  std::size_t held_ = 0;
};

/// One buffer of an operation, in the frame that awaits it.
class watched_buffer {
 public:
  watched_buffer(watched_memory& memory, std::size_t size, const char* what)
      : memory_(memory),
        bytes_(std::make_unique<std::byte[]>(size)),
        size_(size),
        what_(what) {}
  watched_buffer(const watched_buffer&) = delete;
  watched_buffer& operator=(const watched_buffer&) = delete;
  ~watched_buffer() { memory_.retire(std::move(bytes_), size_, what_); }

  [[nodiscard]] std::span<std::byte> bytes() noexcept { return {bytes_.get(), size_}; }

 private:
  watched_memory& memory_;
  std::unique_ptr<std::byte[]> bytes_;
  std::size_t size_;
  const char* what_;
};

}  // namespace manyworlds_tests
