// Memory store: a store inside one process.
#pragma once

#include <mutex>
#include <optional>
#include <string>

#include "manyworlds/store/key_value_table.hpp"
#include "manyworlds/store/store.hpp"

namespace manyworlds::inline v0 {

/// Shared by the runtimes of one process: for tests, simulations and worlds that stay
/// inside. Safe to use from any thread; each operation runs where it is awaited, and
/// waiters resume at their homes.
class memory_store final : public store {
 public:
  explicit memory_store(store_limits limits = {}) noexcept : limits_(limits) {}

  [[nodiscard]] std::string address() const override { return "memory"; }
  [[nodiscard]] task<store_reply> perform(store_request request) override;

 private:
  class key_wait;

  task<store_reply> await_value(store_request request);
  task<store_reply> await_keys(store_request request);
  store_reply perform_now(store_request& request);

  store_limits limits_;
  std::mutex mutex_;
  key_value_table table_;
};

}  // namespace manyworlds::inline v0
