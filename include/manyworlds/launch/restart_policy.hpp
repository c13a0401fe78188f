// Restart policy: whether and when a process that has ended is started again.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "manyworlds/detail/config.hpp"
#include "manyworlds/time.hpp"

namespace manyworlds::inline v0 {

/// Which ends are followed by another start.
enum class restart_when : std::uint8_t {
  never,
  on_failure,  ///< all but exit code 0
  always,
};

/// Returns the name of the enumerator.
[[nodiscard]] std::string_view name_of(restart_when when) noexcept;

/// When a supervised process is started again. One that was stopped is not, nor one of
/// which already the first start failed.
///
/// The first pause is `shortest`, and each one is twice as long as the one before, up to
/// `longest`. Up to half of it is added at random. It is `shortest` again once the
/// process ran for `longest`.
struct restart_policy {
  restart_when when = restart_when::never;
  /// The number of restarts within each `window`; zero is without a limit.
  std::size_t most = 10;
  /// Zero: the whole life of the supervised process.
  duration window = std::chrono::minutes(10);
  duration shortest = std::chrono::milliseconds(50);
  duration longest = std::chrono::seconds(5);
};

}  // namespace manyworlds::inline v0
