// Register file: what a worker's registers hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "manyworlds/detail/remote_callable.hpp"

namespace manyworlds::inline v0::detail {

/// The registers of one incarnation of a worker, by index and generation. The controller
/// chooses both, and is not trusted with memory: an index has a limit.
///
/// A register holds a value, or it has failed by the call that should have filled it.
/// What another incarnation held is not here. Thread: the worker's reactor.
class register_file final : public register_lookup {
 public:
  /// More than a controller can have: its drefs would fill 40 MiB.
  static constexpr std::size_t most_registers = std::size_t{1} << 20;

  /// Fills a register. What an older generation held is let go. Errors: value_error for
  /// an index beyond the limit, and for a generation that is older than the one here.
  void fill(register_id which, held_value value);
  /// Notes that a call failed that should have filled it. Errors: those of `fill`.
  void fail(register_id which, std::uint64_t call, const std::string& function);
  /// Notes that a call should have filled it, of a function that gives nothing. Errors:
  /// those of `fill`.
  void fill_nothing(register_id which, std::uint64_t call, const std::string& function);
  /// Empties a register. Does nothing if it holds another generation, or was never
  /// filled.
  void release(register_id which) noexcept;

  const held_value& find(register_id which) override;

  /// Returns how many registers hold something.
  [[nodiscard]] std::size_t held() const noexcept { return held_; }
  /// Returns how many places there are.
  [[nodiscard]] std::size_t size() const noexcept { return places_.size(); }

 private:
  struct place {
    std::uint32_t generation = 0;
    held_value value;
    /// Says why it holds nothing; empty if it was released or never filled.
    std::string failure;
  };

  place& renew(register_id which);

  std::vector<place> places_;
  std::size_t held_ = 0;
};

}  // namespace manyworlds::inline v0::detail
