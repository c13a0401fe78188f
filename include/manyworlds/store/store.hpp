// Store: the small key-value service through which members find each other.
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/detail/config.hpp"
#include "manyworlds/store/store_error.hpp"

namespace manyworlds::inline v0 {

/// Limits that are checked before anything is sent, and by servers on each length as it
/// arrives. The defaults are those of PyTorch's server, so that every TCPStore accepts
/// what our stores accept.
struct store_limits {
  std::size_t key_bytes = 8 * 1024;
  std::size_t value_bytes = 8 * 1024 * 1024;
  std::size_t keys_per_request = 128 * 1024;
  /// All keys and values of one request; it bounds what a server holds for one
  /// connection.
  std::size_t request_bytes = 64 * 1024 * 1024;
};

/// Holds names of keys, by value: `{"a", "b"}`, or a vector.
class store_keys {
 public:
  store_keys() = default;
  /// Takes the names one by one.
  // No initializer_list: g++ 12.2 does not compile its array in an awaited call.
  template <class... Keys>
  requires(sizeof...(Keys) > 0 && (std::convertible_to<const Keys&, std::string_view> &&
                                   ...)) store_keys(const Keys&... keys) {
    keys_.reserve(sizeof...(keys));
    (keys_.emplace_back(std::string_view(keys)), ...);
  }
  store_keys(std::vector<std::string> keys) noexcept : keys_(std::move(keys)) {}

  /// Returns the names.
  [[nodiscard]] const std::vector<std::string>& list() const& noexcept { return keys_; }
  [[nodiscard]] std::vector<std::string> list() && noexcept { return std::move(keys_); }

 private:
  std::vector<std::string> keys_;
};

/// Describes one operation, which every kind of store performs.
struct store_request {
  store_request(store_operation what, std::vector<std::string> names, duration at_most)
      : operation(what), limit(at_most), keys(std::move(names)) {}

  store_operation operation;
  duration limit;
  /// Of `keys`: none, or the prefix that a key must begin with.
  std::vector<std::string> keys;
  std::string value;     ///< of set, append and push; the desired one of compare_set
  std::string expected;  ///< of compare_set
  std::vector<std::string> values;  ///< of multi_set, one for each key
  std::int64_t delta = 0;           ///< of add; the members of a barrier
};

/// One key and its value, for `multi_set`.
struct store_entry {
  std::string key;
  std::string value;
};

/// The reply of an operation, in the field that belongs to it.
struct store_reply {
  store_reply() = default;
  explicit store_reply(std::optional<std::string> v) : value(std::move(v)) {}
  explicit store_reply(std::int64_t n) : number(n) {}

  std::optional<std::string> value;  ///< of get, try_get, compare_set, pop, try_pop
  std::int64_t number = 0;  ///< of add, num_keys, queue_size; erase and check: 1 is true
  std::vector<std::string> values;  ///< of multi_get, in the keys' order; of keys
};

namespace detail {

class store_gate;

/// The gates through which worlds that are being formed use a store, from another
/// thread. They may outlive it: `exit()` inside a task destroys a store of static
/// lifetime under the worlds of that task. Thread: any.
class store_users {
 public:
  void add(store_gate& gate);
  void remove(store_gate& gate) noexcept;
  /// Shuts all gates, since the store ends. With `answers` it still takes a last request
  /// of each within the call.
  void end(bool answers) noexcept;

 private:
  std::mutex mutex_;
  std::vector<store_gate*> gates_;  // guarded by mutex_
};

}  // namespace detail

/// A key-value service. Keys and values are byte strings.
///
///     co_await store.set("model", "/models/7b");
///     const std::string path = co_await store.get("model", 30s);  // waits for the key
///     if (co_await store.add("ready", 1) == members) std::puts("all are there");
///
/// Operations may be awaited from any task and several at a time; each resumes at the
/// home of its task. Each ends within its limit, which counts from its start, also when
/// nothing answers. Cancelling one waits until nothing of it is left; a request that
/// was sent may have taken effect or not. Lifetime: the store must outlive its
/// operations, unless it says otherwise.
///
/// Errors: every operation throws store_error, of the kinds `unreachable`, `protocol` and
/// `too_large`; others stand at the operation.
class store {
 public:
  /// Limit of operations that wait for an answer only, not for a key to be set.
  static constexpr duration default_limit = std::chrono::seconds(10);

  store() : users_(std::make_shared<detail::store_users>()) {}
  store(const store&) = delete;
  store& operator=(const store&) = delete;
  virtual ~store() { users_->end(false); }

  /// Says for people why the store cannot be reached, until it has answered again;
  /// empty otherwise. An operation that is under way may still succeed. Thread: any.
  [[nodiscard]] virtual std::string trouble() const { return {}; }
  /// Says for people where the store is.
  [[nodiscard]] virtual std::string address() const = 0;

  /// Sets the key, and wakes those that wait for it.
  task<void> set(std::string key, std::string value, duration limit = default_limit);
  /// Waits until the key is set and returns its value. Errors: `timed_out` if it is not
  /// set in time.
  task<std::string> get(std::string key, duration limit);
  /// Returns the value, or nothing if the key is not set.
  task<std::optional<std::string>> try_get(std::string key,
                                           duration limit = default_limit);
  /// Waits until each of the keys has been set. Errors: `timed_out` names the missing
  /// keys.
  task<void> wait(store_keys keys, duration limit);
  /// Adds to a decimal number, 0 if the key is not set, and returns the sum. Errors:
  /// `refused` if the value is no number or the sum exceeds 64 bits.
  task<std::int64_t> add(std::string key, std::int64_t delta,
                         duration limit = default_limit);
  /// Stores `desired` if the value is `expected`, where an empty `expected` also
  /// matches a key that is not set. Returns `desired` if it was stored, otherwise the
  /// present value. PyTorch's rule for a key that is not set and a non-empty
  /// `expected`: it stores nothing and returns `expected`. So the caller has won if the
  /// result is `desired`, provided `desired` differs from `expected` and no other
  /// caller would store the same bytes.
  task<std::string> compare_set(std::string key, std::string expected,
                                std::string desired, duration limit = default_limit);
  /// Works as `compare_set`, for a `desired` that holds a random number of the caller
  /// and so is stored by no other. If the connection is lost between question and
  /// answer, it reads the key and asks again if nothing has happened, up to 16 times. The
  /// limit applies to each request.
  task<std::string> compare_set_unique(std::string key, std::string expected,
                                       std::string desired,
                                       duration limit = default_limit);
  /// Erases the key and returns whether it was set.
  task<bool> erase(std::string key, duration limit = default_limit);
  /// Returns whether all of the keys are set.
  task<bool> check(store_keys keys, duration limit = default_limit);
  /// Returns the number of keys in the whole store, regardless of prefixes. A TCPStore
  /// that PyTorch opened holds one more, PyTorch's.
  task<std::int64_t> num_keys(duration limit = default_limit);
  /// Returns all keys that are set, in no order; a prefix store returns its own. Queues
  /// do not count.
  task<std::vector<std::string>> keys(duration limit = default_limit);
  /// Appends to the value; a key that is not set begins empty.
  task<void> append(std::string key, std::string more, duration limit = default_limit);
  /// Waits until all keys are set and returns their values in the same order. Errors:
  /// `timed_out` names the missing keys.
  task<std::vector<std::string>> multi_get(store_keys keys, duration limit);
  /// Sets all of the keys in one request, one after the other.
  task<void> multi_set(std::vector<store_entry> entries, duration limit = default_limit);

  /// Puts a value at the end of a queue, and wakes one of those that wait for it. Queues
  /// and keys are apart, but a queue that is not empty counts as a key that is set for
  /// `wait` and `check`. Over tcp a `wait` for a queue counts as a `pop` that takes
  /// nothing: another one may learn of the value up to
  /// `tcp_store_options::probe_interval` later.
  task<void> push(std::string queue, std::string value, duration limit = default_limit);
  /// Waits until the queue is not empty, and takes its first value. Errors: `timed_out`.
  task<std::string> pop(std::string queue, duration limit);
  /// Takes the first value of a queue, or nothing if it is empty.
  task<std::optional<std::string>> try_pop(std::string queue,
                                           duration limit = default_limit);
  /// Returns the number of values in a queue.
  task<std::int64_t> queue_size(std::string queue, duration limit = default_limit);

  /// Counts an arrival under the key, and waits until `members` have arrived. The count
  /// stays: later arrivals pass at once, so another barrier needs another key. A member
  /// that gives up has arrived all the same. Errors: `timed_out` if not all come in time;
  /// `refused` if the key holds no number.
  task<void> barrier(std::string key, std::int64_t members, duration limit);

  /// Performs any of the operations above. Thread: any. Lifetime: all that the task
  /// needs is read before this returns, or kept by the task. A world that is dropped
  /// while it forms lets go of its store at once, but its last request goes on.
  virtual task<store_reply> perform(store_request request) = 0;

  [[nodiscard]] const std::shared_ptr<detail::store_users>& users() const noexcept {
    return users_;
  }

 protected:
  /// Must be called first in a derived destructor: worlds withdraw there what they have
  /// entered.
  void end_users() noexcept { users_->end(true); }

 private:
  std::shared_ptr<detail::store_users> users_;
};

namespace detail {

/// Checks the request against the limits; `store` is the address to name. Errors:
/// `too_large`; `refused` for an operation that no request describes.
void check_limits(const store_request& request, const store_limits& limits,
                  const std::string& store);

/// Leaves the keys that begin with the prefix, which is what `keys` asks for.
void keep_prefixed(std::vector<std::string>& keys, std::string_view prefix);

}  // namespace detail

}  // namespace manyworlds::inline v0
