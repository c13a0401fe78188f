// CPU binding: says whether a thread may run on one CPU only, and on which.
#pragma once

#include <cstdint>
#include <optional>

#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0::detail {

/// A thread's affinity, in one word that processes exchange. Two threads that are bound
/// to the same CPU must not spin for each other: one of them keeps the other from
/// running. If they are bound to different ones, each has a CPU that nothing else wants.
class cpu_binding {
 public:
  /// A binding of which nothing is known.
  constexpr cpu_binding() noexcept = default;
  [[nodiscard]] static constexpr cpu_binding to_several() noexcept {
    return cpu_binding(1);
  }
  [[nodiscard]] static constexpr cpu_binding to(unsigned cpu) noexcept {
    return cpu_binding(cpu + 2);
  }
  /// Returns the binding that a peer's word stands for. Every word is valid.
  [[nodiscard]] static constexpr cpu_binding of_word(std::uint32_t word) noexcept {
    return cpu_binding(word);
  }
  /// Asks the kernel for the affinity of a thread of this process, by its kernel number.
  [[nodiscard]] static cpu_binding of_thread(int thread) noexcept;

  [[nodiscard]] constexpr std::uint32_t word() const noexcept { return word_; }
  /// Returns the one CPU; nothing if there are several, or nothing is known.
  [[nodiscard]] constexpr std::optional<unsigned> only_cpu() const noexcept {
    return word_ < 2 ? std::nullopt : std::optional<unsigned>(word_ - 2);
  }

  friend bool operator==(const cpu_binding&, const cpu_binding&) noexcept = default;

 private:
  constexpr explicit cpu_binding(std::uint32_t word) noexcept : word_(word) {}
  /// 0: unknown; 1: several; else the CPU's number and 2.
  std::uint32_t word_ = 0;
};

}  // namespace manyworlds::inline v0::detail
