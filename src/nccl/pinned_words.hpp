// Pinned words: host memory that streams write numbers to.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace manyworlds::inline v0::detail::nccl {

/// A word with a cache line of its own.
struct pinned_word {
  std::uint32_t* host = nullptr;
  unsigned long long device = 0;

  explicit operator bool() const noexcept { return host != nullptr; }
  [[nodiscard]] std::uint32_t read() const noexcept {
    // Acquire: the stream writes it after what the operations before it have written.
    return std::atomic_ref<std::uint32_t>(*host).load(std::memory_order_acquire);
  }
  /// Precondition: the stream does not write it meanwhile.
  void write(std::uint32_t value) const noexcept {
    std::atomic_ref<std::uint32_t>(*host).store(value, std::memory_order_release);
  }
};

/// Keeps the words of one device. Pages are pinned as they are needed and kept: to pin
/// and to free them makes the driver wait for the device. Thread-safe.
class pinned_words {
 public:
  pinned_words() = default;
  pinned_words(const pinned_words&) = delete;
  pinned_words& operator=(const pinned_words&) = delete;

  /// Returns a word of zero, or null if none is available; may block. Precondition: the
  /// device is current.
  [[nodiscard]] pinned_word take();
  /// Takes a word back; one that is never given back stays its stream's. Precondition:
  /// nothing can write it.
  void give_back(pinned_word word) noexcept;
  /// Frees all pages, if all words are back; may block.
  void free() noexcept;

 private:
  std::mutex mutex_;
  std::vector<void*> pages_;
  std::vector<pinned_word> unused_;
  std::size_t taken_ = 0;
};

}  // namespace manyworlds::inline v0::detail::nccl
