// Store error: why an operation on a store failed.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "manyworlds/detail/config.hpp"
#include "manyworlds/time.hpp"

namespace manyworlds::inline v0 {

/// Names the operations of a store.
enum class store_operation : std::uint8_t {
  set,
  get,
  try_get,
  wait,
  add,
  compare_set,
  erase,
  check,
  num_keys,
  append,
  multi_get,
  multi_set,
  push,
  pop,
  try_pop,
  queue_size,
  keys,
  barrier,
  // What an etcd store has besides.
  transaction,
  lease,
  watch,
  list,
};

[[nodiscard]] std::string_view name_of(store_operation o) noexcept;

/// Says why an operation on a store failed.
enum class store_error_kind : std::uint8_t {
  unreachable,  ///< the store could not be reached, or did not answer in time
  timed_out,  ///< the store answers, but keys were not set in time: `keys` are those; or
              ///< not all came to a barrier
  protocol,   ///< what answers at the address does not speak the store's protocol
  too_large,  ///< a key, a value or a list of keys exceeds the limits; nothing was sent
  refused,    ///< the store cannot do this to the value it holds (`add` to what is no
              ///< number), has no such operation, or has another secret
};

[[nodiscard]] std::string_view name_of(store_error_kind k) noexcept;

/// The fields of a store error.
struct store_failure {
  store_failure(store_error_kind kind, std::string store, store_operation operation,
                std::vector<std::string> keys, duration elapsed, std::string reason);

  store_error_kind kind;
  /// The store's address: "tcp://127.0.0.1:29500", "memory".
  std::string store;
  store_operation operation;
  /// The keys concerned; for a wait that timed out, the missing ones.
  std::vector<std::string> keys;
  duration elapsed;
  std::string reason;
  /// The connection ended between request and answer: an operation that is not repeated
  /// (`add`, `compare_set`, `append`, `push`, `pop`, `barrier`) may have happened.
  bool may_have_happened = false;

  /// Returns "store tcp://127.0.0.1:29500: get of "join/1" timed out after 2 s: ...".
  [[nodiscard]] std::string text() const;
};

/// The only exception of operations on stores. Copies share the failure.
class MANYWORLDS_EXPORT store_error : public std::exception {
 public:
  explicit store_error(store_failure failure);

  [[nodiscard]] const char* what() const noexcept override;
  [[nodiscard]] const store_failure& failure() const noexcept { return state_->failure; }
  [[nodiscard]] store_error_kind kind() const noexcept { return state_->failure.kind; }

 private:
  struct state {
    store_failure failure;
    std::string text;
  };
  std::shared_ptr<const state> state_;
};

}  // namespace manyworlds::inline v0
