// Beat line: the signs of life of one process, in memory that its peer can see.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "io/cpu_binding.hpp"
#include "link/shared_word.hpp"

namespace manyworlds::inline v0::detail::shm {

/// Zeroed memory is a line without a beat. It holds no time: the clocks of two
/// containers may differ.
struct alignas(line_size) beat_line {
  std::atomic<std::uint64_t> beats;
  /// Progress of the user reactor: grows while it turns, or is parked.
  std::atomic<std::uint64_t> progress;
  /// The CPU that the user reactor is bound to; see cpu_binding.
  std::atomic<std::uint32_t> cpu;
};

/// The content of one beat.
struct beat_signs {
  std::uint64_t progress = 0;
  cpu_binding cpu;
};

/// One side's use of both lines. Thread: the service thread. Silence is measured by our
/// clock, between two looks that found another number. So a peer can only seem alive or
/// silent by what it writes, as it could anyway.
class beat_exchange {
 public:
  beat_exchange(beat_line& ours, const beat_line& theirs) noexcept
      : ours_(&ours), theirs_(&theirs) {}

  /// Shows the peer a sign of life.
  void beat(const beat_signs& signs) noexcept {
    ours_->progress.store(signs.progress, std::memory_order_relaxed);
    ours_->cpu.store(signs.cpu.word(), std::memory_order_relaxed);
    // Release: pairs with the acquire in poll(), which then sees these signs or later.
    ours_->beats.store(++count_, std::memory_order_release);
  }

  /// Returns the peer's signs, if it has beaten since the last call.
  [[nodiscard]] std::optional<beat_signs> poll() noexcept {
    const auto now = theirs_->beats.load(std::memory_order_acquire);
    if (now == seen_) return std::nullopt;
    seen_ = now;
    beat_signs signs;
    signs.progress = theirs_->progress.load(std::memory_order_relaxed);
    signs.cpu = cpu_binding::of_word(theirs_->cpu.load(std::memory_order_relaxed));
    return signs;
  }

 private:
  beat_line* ours_;
  const beat_line* theirs_;
  // A private copy: the peer could overwrite the number in the line.
  std::uint64_t count_ = 0;
  std::uint64_t seen_ = 0;
};

}  // namespace manyworlds::inline v0::detail::shm
