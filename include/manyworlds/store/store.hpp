// Store: the small key-value service through which members find each other.
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/store/store_error.hpp"
#include "manyworlds/store/store_limits.hpp"

namespace manyworlds::inline v0 {

/// Names of keys, by value: `{"a", "b"}`, or a vector.
class store_keys {
 public:
  store_keys() = default;
  // No initializer_list: g++ 12.2 does not compile its array in an awaited call.
  template <class... Keys>
  requires(sizeof...(Keys) > 0 && (std::convertible_to<const Keys&, std::string_view> &&
                                   ...)) store_keys(const Keys&... keys) {
    keys_.reserve(sizeof...(keys));
    (keys_.emplace_back(std::string_view(keys)), ...);
  }
  store_keys(std::vector<std::string> keys) noexcept : keys_(std::move(keys)) {}

  [[nodiscard]] const std::vector<std::string>& list() const& noexcept { return keys_; }
  [[nodiscard]] std::vector<std::string> list() && noexcept { return std::move(keys_); }

 private:
  std::vector<std::string> keys_;
};

/// One operation as a value: what every kind of store performs.
struct store_request {
  store_request(store_operation what, std::vector<std::string> names, duration at_most)
      : operation(what), limit(at_most), keys(std::move(names)) {}

  store_operation operation;
  duration limit;
  std::vector<std::string> keys;
  std::string value;     ///< of set; the desired one of compare_set
  std::string expected;  ///< of compare_set
  std::int64_t delta = 0;
};

/// What an operation gave: the field that belongs to it.
struct store_reply {
  store_reply() = default;
  explicit store_reply(std::optional<std::string> v) : value(std::move(v)) {}
  explicit store_reply(std::int64_t n) : number(n) {}

  std::optional<std::string> value;  ///< of get, try_get, compare_set
  std::int64_t number = 0;           ///< of add, num_keys; erase and check: 1 is true
};

/// What asks a store on a thread of its own, as worlds do that are being formed.
class store_user {
 public:
  /// The store is being destroyed, and must not be asked any more once this returns.
  /// `answers`: a last request may be made within the call. Any thread.
  virtual void store_ends(bool answers) noexcept = 0;

 protected:
  ~store_user() = default;
};

/// The users of one store, which outlive it now and then: `exit()` inside a task destroys
/// a store of static lifetime under the worlds that the task has. Any thread.
class store_users {
 public:
  void add(store_user& user);
  void remove(store_user& user) noexcept;
  /// Tells them, and forgets them.
  void end(bool answers) noexcept;

 private:
  std::mutex mutex_;
  std::vector<store_user*> users_;  // guarded by mutex_
};

/// A key-value service. Keys and values are byte strings.
///
/// Operations may be awaited from any task, whatever its home, and several at a time;
/// they resume at that home, and fail with `store_error`. Each ends within its limit
/// (which counts from its start), also when nothing answers. Cancelling one waits until
/// nothing of it is left, and leaves open whether a request that was sent has taken
/// effect. The store must outlive its operations, unless it says otherwise.
class store {
 public:
  /// For operations that wait for an answer only, not for others to set a key.
  static constexpr duration default_limit = std::chrono::seconds(10);

  store() : users_(std::make_shared<store_users>()) {}
  store(const store&) = delete;
  store& operator=(const store&) = delete;
  virtual ~store() { users_->end(false); }

  /// Why the store cannot be reached, for people, as long as it has not answered since;
  /// empty otherwise. What is asked of it meanwhile may succeed later. Any thread.
  [[nodiscard]] virtual std::string trouble() const { return {}; }
  /// Where the store is, for people.
  [[nodiscard]] virtual std::string address() const = 0;

  task<void> set(std::string key, std::string value, duration limit = default_limit);
  /// Waits until the key is set. `timed_out` otherwise.
  task<std::string> get(std::string key, duration limit);
  /// The value, or nothing if the key is not set.
  task<std::optional<std::string>> try_get(std::string key,
                                           duration limit = default_limit);
  /// Waits until each of the keys has been set. `timed_out` names those that are missing.
  task<void> wait(store_keys keys, duration limit);
  /// Adds to a decimal number, 0 if the key is not set, and gives the sum. `refused` if
  /// the value is no number or the sum exceeds 64 bits.
  task<std::int64_t> add(std::string key, std::int64_t delta,
                         duration limit = default_limit);
  /// Stores `desired` if the value is `expected`, where an empty `expected` also matches
  /// a key that is not set. Gives `desired` if it was stored, otherwise the value that
  /// stands there. PyTorch's rule for a key that is not set and a non-empty `expected`:
  /// stores nothing and gives `expected`. So the caller has won if the result is
  /// `desired`, provided `desired` differs from `expected` and no one else would store
  /// the same bytes.
  task<std::string> compare_set(std::string key, std::string expected,
                                std::string desired, duration limit = default_limit);
  /// As `compare_set`, for a `desired` that nothing else ever stores: it holds a random
  /// number of the caller's. If the store is lost between question and answer, the key
  /// tells afterwards what came of it, and the question is asked again if nothing did: it
  /// never fails with `may_have_happened`. The limit is that of each request.
  task<std::string> compare_set_unique(std::string key, std::string expected,
                                       std::string desired,
                                       duration limit = default_limit);
  /// Whether there was such a key.
  task<bool> erase(std::string key, duration limit = default_limit);
  /// Whether all of the keys are set.
  task<bool> check(store_keys keys, duration limit = default_limit);
  /// Of the whole store, prefixes notwithstanding; a TCPStore that PyTorch opened has one
  /// of its own.
  task<std::int64_t> num_keys(duration limit = default_limit);

  /// What all of the above come down to. Called on any thread; the store's own address
  /// and all that the task needs is read before it returns, or kept by the task: a world
  /// that is dropped while it forms lets go of its store at once, its last request does
  /// not.
  [[nodiscard]] virtual task<store_reply> perform(store_request request) = 0;

  [[nodiscard]] const std::shared_ptr<store_users>& users() const noexcept {
    return users_;
  }

 protected:
  /// First of all in a derived destructor: worlds take back there what they have entered.
  void end_users() noexcept { users_->end(true); }

 private:
  std::shared_ptr<store_users> users_;
};

/// Throws `too_large` if the request exceeds the limits; `store` is the address to name.
void check_limits(const store_request& request, const store_limits& limits,
                  const std::string& store);

}  // namespace manyworlds::inline v0
