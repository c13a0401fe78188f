// Persistent keys: operations on a store that are tried until it has answered.
#pragma once

#include <optional>
#include <string>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/store/store.hpp"
#include "manyworlds/time.hpp"

namespace manyworlds::inline v0::detail {

/// Law G-c: that the store is away ends nothing. An operation may be done twice, as its
/// first answer was lost. Errors: store_error for what will not pass, as another secret.
/// Lifetime: the store outlives it, and it outlives its tasks.
class persistent_keys {
 public:
  explicit persistent_keys(store& keys) noexcept : keys_(keys) {}

  /// Waits until the key is set.
  [[nodiscard]] task<std::string> get(std::string key);
  /// Does the same for so long at most; nothing if it is not set by then.
  [[nodiscard]] task<std::optional<std::string>> get_within(std::string key,
                                                            duration limit);
  /// Returns the value that the key has, or an empty one.
  [[nodiscard]] task<std::string> latest(std::string key);
  [[nodiscard]] task<void> set(std::string key, std::string value);
  /// Sets the key if it has the expected value, and returns which one it has then.
  [[nodiscard]] task<std::string> exchange(std::string key, std::string expected,
                                           std::string desired);

 private:
  store& keys_;
};

}  // namespace manyworlds::inline v0::detail
