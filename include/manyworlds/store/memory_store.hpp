// Memory store: a store inside one process.
#pragma once

#include <memory>
#include <string>

#include "manyworlds/store/store.hpp"

namespace manyworlds::inline v0 {

/// Is shared by the runtimes of one process, for tests, simulations and worlds that
/// stay inside. Thread: any; each operation runs where it is awaited, and waiters
/// resume at their homes. Lifetime: it may be destroyed while they wait; each then ends
/// at its limit. Errors: those of `store`, but never `unreachable` or `protocol`.
///
///     mw::memory_store store;
///     mw::runtime left, right;  // two members in one process
///     auto first = left.start(
///         mw::keep(left, store, {.name = "edge", .rank = 0, .size = 2}, edge));
///     right.run(mw::keep(right, store, {.name = "edge", .rank = 1, .size = 2}, edge));
///     first.get();
class memory_store final : public store {
 public:
  explicit memory_store(store_limits limits = {});
  ~memory_store() override;

  [[nodiscard]] std::string address() const override;
  task<store_reply> perform(store_request request) override;

 private:
  class contents;

  std::shared_ptr<contents> contents_;
};

}  // namespace manyworlds::inline v0
