// Key-value table: the data of a store and its waiters. Shared by all stores that hold
// data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0::detail {

/// The data and the rules of PyTorch's TCPStore, without I/O and without threads.
/// Precondition: the owner serialises the calls. Keys and queues are apart, but a queue
/// that is not empty counts as a set key for checks and waits.
class key_value_table {
 public:
  /// A wait for keys, embedded in the state of the waiting operation. `released` is
  /// called once, from inside the operation that sets the last missing key; the table
  /// does not touch the waiter from then on. Precondition: `released` does not call the
  /// table.
  class waiter {
   public:
    using function = void (*)(waiter&) noexcept;
    explicit waiter(function released) noexcept : released_(released) {}
    waiter(const waiter&) = delete;
    waiter& operator=(const waiter&) = delete;

    [[nodiscard]] bool is_waiting() const noexcept { return missing_ > 0; }

   protected:
    ~waiter() = default;

   private:
    friend class key_value_table;
    void note_key() noexcept;

    function released_;
    std::vector<std::string> keys_;
    std::size_t missing_ = 0;
    bool at_barrier_ = false;
    bool takes_ = false;
  };

  /// Is told each change of the keys that it watches, from inside the change, with null
  /// for a key that was or is not set. Precondition: `changed` does not call the table.
  class watcher {
   public:
    using function = void (*)(watcher&, const std::string& key, const std::string* before,
                              const std::string* after);
    explicit watcher(function changed) noexcept : changed_(changed) {}
    watcher(const watcher&) = delete;
    watcher& operator=(const watcher&) = delete;

   protected:
    ~watcher() = default;

   private:
    friend class key_value_table;
    function changed_;
    std::vector<std::string> keys_;
  };

  key_value_table() = default;
  key_value_table(const key_value_table&) = delete;
  key_value_table& operator=(const key_value_table&) = delete;

  void set(std::string key, std::string value);
  /// Returns null if the key is not set. Lifetime: until the next change.
  [[nodiscard]] const std::string* find(const std::string& key) const;
  /// Returns the sum, stored in decimal; nothing, and no change, if the value is no
  /// number or the sum overflows.
  [[nodiscard]] std::optional<std::int64_t> add(const std::string& key,
                                                std::int64_t delta);
  /// Works as `store::compare_set`.
  [[nodiscard]] std::string compare_set(const std::string& key,
                                        const std::string& expected, std::string desired);
  void append(const std::string& key, std::string_view more);
  [[nodiscard]] bool erase(const std::string& key);
  [[nodiscard]] bool contains(const std::string& key) const;
  [[nodiscard]] bool contains_all(const std::vector<std::string>& keys) const;
  [[nodiscard]] std::size_t key_count() const noexcept { return values_.size(); }
  [[nodiscard]] std::vector<std::string> keys() const;

  void push(const std::string& queue, std::string value);
  [[nodiscard]] std::optional<std::string> pop(const std::string& queue);
  /// Wakes the next that waits to take from a queue, if it is not empty: the one that was
  /// woken by a push does not take, or is gone.
  void pass_on(const std::string& queue) noexcept;
  [[nodiscard]] std::size_t queue_size(const std::string& queue) const;

  /// Returns true if all keys are set. Otherwise the waiter is released when each of
  /// them has been set once; a key that is erased meanwhile does not count again.
  /// Of those that wait for a queue and `take` from it, a push releases the first alone.
  /// Precondition: the waiter does not wait; one that takes waits for its queue alone.
  [[nodiscard]] bool await(waiter& w, std::vector<std::string> keys, bool takes = false);
  /// Counts an arrival under the key. Returns true if `world` have arrived, which
  /// releases all waiters there, and nothing if the value is no number. Later arrivals
  /// pass at once, since the counter is never reset. Precondition: the waiter does not
  /// wait.
  [[nodiscard]] std::optional<bool> arrive(waiter& w, const std::string& key,
                                           std::int64_t world);
  /// Withdraws the waiter: it is not released afterwards. Does nothing if it does not
  /// wait.
  void forget(waiter& w) noexcept;

  /// Watches one more key; a key that is watched already is not watched twice.
  void watch(watcher& w, const std::string& key);
  /// Ends all that it watches.
  void forget(watcher& w) noexcept;

  /// Returns roughly what keys, values and queues occupy.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  using waiter_lists = std::unordered_map<std::string, std::vector<waiter*>>;

  static void release(waiter_lists& lists, const std::string& key) noexcept;
  void release_at_push(const std::string& queue) noexcept;
  void replace(std::string& value, std::string with) noexcept;
  void tell(const std::string& key, const std::string* before, const std::string* after);

  std::unordered_map<std::string, std::string> values_;
  std::unordered_map<std::string, std::deque<std::string>> queues_;
  waiter_lists awaited_;
  waiter_lists barriers_;
  std::unordered_map<std::string, std::vector<watcher*>> watched_;
  std::size_t bytes_ = 0;
};

}  // namespace manyworlds::inline v0::detail
