#include "mpmd/persistent_keys.hpp"

#include <chrono>
#include <utility>

#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/store/store_error.hpp"

namespace manyworlds::inline v0::detail {

constexpr duration pause_without_store = std::chrono::milliseconds(100);

template <class Operation>
static auto persistently(Operation operation) -> decltype(operation()) {
  for (;;) {
    try {
      co_return co_await operation();
    } catch (const store_error& e) {
      if (e.kind() != store_error_kind::unreachable &&
          e.kind() != store_error_kind::timed_out)
        throw;
    }
    // It may be back.
    co_await sleep_for(pause_without_store);
  }
}

task<std::string> persistent_keys::get(std::string key) {
  for (;;) {
    std::optional<std::string> value = co_await get_within(key, std::chrono::hours(1));
    if (value) co_return std::move(*value);
  }
}

task<std::optional<std::string>> persistent_keys::get_within(std::string key,
                                                             duration limit) {
  const auto once = [this, &key, limit]() -> task<std::optional<std::string>> {
    try {
      std::string value = co_await keys_.get(key, limit);
      co_return std::move(value);
    } catch (const store_error& e) {
      if (e.kind() != store_error_kind::timed_out) throw;
    }
    co_return std::nullopt;
  };
  co_return co_await persistently(once);
}

task<std::string> persistent_keys::latest(std::string key) {
  const auto once = [this, &key] { return keys_.try_get(key); };
  co_return (co_await persistently(once)).value_or("");
}

task<void> persistent_keys::set(std::string key, std::string value) {
  const auto once = [this, &key, &value] { return keys_.set(key, value); };
  co_await persistently(once);
}

task<std::string> persistent_keys::exchange(std::string key, std::string expected,
                                            std::string desired) {
  const auto once = [this, &key, &expected, &desired] {
    return keys_.compare_set(key, expected, desired);
  };
  co_return co_await persistently(once);
}

}  // namespace manyworlds::inline v0::detail
