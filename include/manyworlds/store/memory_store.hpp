// Memory store: a store inside one process.
#pragma once

#include <memory>
#include <string>

#include "manyworlds/store/store.hpp"

namespace manyworlds::inline v0 {

/// Shared by the runtimes of one process: for tests, simulations and worlds that stay
/// inside. Safe to use from any thread; each operation runs where it is awaited, and
/// waiters resume at their homes. It may be destroyed while they wait: each ends at its
/// limit then.
class memory_store final : public store {
 public:
  explicit memory_store(store_limits limits = {});
  ~memory_store() override;

  [[nodiscard]] std::string address() const override;
  [[nodiscard]] task<store_reply> perform(store_request request) override;

 private:
  class contents;

  std::shared_ptr<contents> contents_;
};

}  // namespace manyworlds::inline v0
