#include "store/key_value_table.hpp"

#include <algorithm>
#include <utility>

#include "manyworlds/detail/assertion.hpp"
#include "store/stored_number.hpp"

namespace manyworlds::inline v0::detail {

namespace {

// Roughly what the maps need beside the bytes themselves.
constexpr std::size_t entry_overhead = 96;

}  // namespace

void key_value_table::replace(std::string& value, std::string with) noexcept {
  MW_ASSERT(bytes_ >= value.size(), "the bytes of all values are counted");
  bytes_ += with.size();
  bytes_ -= value.size();
  value = std::move(with);
}

void key_value_table::set(std::string key, std::string value) {
  const auto [entry, is_new] = values_.try_emplace(std::move(key));
  if (is_new) bytes_ += entry->first.size() + entry_overhead;
  if (!watched_.empty()) tell(entry->first, is_new ? nullptr : &entry->second, &value);
  replace(entry->second, std::move(value));
  release(awaited_, entry->first);
}

const std::string* key_value_table::find(const std::string& key) const {
  const auto entry = values_.find(key);
  return entry == values_.end() ? nullptr : &entry->second;
}

std::optional<std::int64_t> key_value_table::add(const std::string& key,
                                                 std::int64_t delta) {
  std::int64_t sum = 0;
  if (const std::string* value = find(key)) {
    const std::optional<std::int64_t> number = stored_number(*value);
    if (!number) return std::nullopt;
    sum = *number;
  }
  if (__builtin_add_overflow(sum, delta, &sum)) return std::nullopt;
  set(key, std::to_string(sum));
  return sum;
}

std::string key_value_table::compare_set(const std::string& key,
                                         const std::string& expected,
                                         std::string desired) {
  const std::string* value = find(key);
  if (!value && !expected.empty()) return expected;
  if (value && *value != expected) return *value;
  set(key, desired);
  return desired;
}

void key_value_table::append(const std::string& key, std::string_view more) {
  const std::string* value = find(key);
  std::string joined = value ? *value : std::string();
  joined += more;
  set(key, std::move(joined));
}

bool key_value_table::erase(const std::string& key) {
  const auto entry = values_.find(key);
  if (entry == values_.end()) return false;
  MW_ASSERT(bytes_ >= entry->first.size() + entry->second.size() + entry_overhead,
            "the bytes of all keys are counted");
  bytes_ -= entry->first.size() + entry->second.size() + entry_overhead;
  if (!watched_.empty()) tell(entry->first, &entry->second, nullptr);
  values_.erase(entry);
  return true;
}

bool key_value_table::contains(const std::string& key) const {
  return values_.contains(key) || queues_.contains(key);
}

bool key_value_table::contains_all(const std::vector<std::string>& keys) const {
  return std::all_of(keys.begin(), keys.end(),
                     [this](const std::string& key) { return contains(key); });
}

std::vector<std::string> key_value_table::keys() const {
  std::vector<std::string> list;
  list.reserve(values_.size());
  for (const auto& [key, value] : values_) list.push_back(key);
  return list;
}

void key_value_table::push(const std::string& queue, std::string value) {
  const auto [entry, is_new] = queues_.try_emplace(queue);
  if (is_new) bytes_ += queue.size() + entry_overhead;
  bytes_ += value.size() + entry_overhead;
  entry->second.push_back(std::move(value));
  release_at_push(queue);
}

std::optional<std::string> key_value_table::pop(const std::string& queue) {
  const auto entry = queues_.find(queue);
  if (entry == queues_.end()) return std::nullopt;
  MW_ASSERT(!entry->second.empty(), "a queue that is empty is erased");
  std::string value = std::move(entry->second.front());
  entry->second.pop_front();
  MW_ASSERT(bytes_ >= value.size() + entry_overhead,
            "the bytes of all values are counted");
  bytes_ -= value.size() + entry_overhead;
  if (entry->second.empty()) {
    MW_ASSERT(bytes_ >= queue.size() + entry_overhead,
              "the bytes of all queues are counted");
    bytes_ -= queue.size() + entry_overhead;
    queues_.erase(entry);
  }
  return value;
}

void key_value_table::pass_on(const std::string& queue) noexcept {
  if (queues_.contains(queue)) release_at_push(queue);
}

std::size_t key_value_table::queue_size(const std::string& queue) const {
  const auto entry = queues_.find(queue);
  return entry == queues_.end() ? 0 : entry->second.size();
}

bool key_value_table::await(waiter& w, std::vector<std::string> keys, bool takes) {
  MW_ASSERT(!w.is_waiting(), "a waiter waits once at a time");
  MW_ASSERT(!takes || keys.size() == 1, "one queue is taken from at a time");
  std::erase_if(keys, [this](const std::string& key) { return contains(key); });
  if (keys.empty()) return true;
  // Each key once: one that is repeated a hundred thousand times would cost `forget` as
  // many searches of its list of waiters.
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  w.keys_ = std::move(keys);
  w.missing_ = w.keys_.size();
  w.at_barrier_ = false;
  w.takes_ = takes;
  for (const std::string& key : w.keys_) awaited_[key].push_back(&w);
  return false;
}

std::optional<bool> key_value_table::arrive(waiter& w, const std::string& key,
                                            std::int64_t world) {
  MW_ASSERT(!w.is_waiting(), "a waiter waits once at a time");
  const std::optional<std::int64_t> arrived = add(key, 1);
  if (!arrived) return std::nullopt;
  if (*arrived >= world) {
    release(barriers_, key);
    return true;
  }
  w.keys_.assign(1, key);
  w.missing_ = 1;
  w.at_barrier_ = true;
  barriers_[key].push_back(&w);
  return false;
}

void key_value_table::forget(waiter& w) noexcept {
  if (!w.is_waiting()) return;
  waiter_lists& lists = w.at_barrier_ ? barriers_ : awaited_;
  for (const std::string& key : w.keys_) {
    const auto entry = lists.find(key);
    if (entry == lists.end()) continue;
    std::erase(entry->second, &w);
    if (entry->second.empty()) lists.erase(entry);
  }
  w.missing_ = 0;
  w.keys_ = {};
}

void key_value_table::watch(watcher& w, const std::string& key) {
  std::vector<watcher*>& watchers = watched_[key];
  if (std::find(watchers.begin(), watchers.end(), &w) != watchers.end()) return;
  watchers.push_back(&w);
  w.keys_.push_back(key);
}

void key_value_table::forget(watcher& w) noexcept {
  for (const std::string& key : w.keys_) {
    const auto entry = watched_.find(key);
    MW_ASSERT(entry != watched_.end(), "a key that is watched has a list");
    std::erase(entry->second, &w);
    if (entry->second.empty()) watched_.erase(entry);
  }
  w.keys_ = {};
}

void key_value_table::tell(const std::string& key, const std::string* before,
                           const std::string* after) {
  const auto entry = watched_.find(key);
  if (entry == watched_.end()) return;
  for (watcher* w : entry->second) w->changed_(*w, key, before, after);
}

void key_value_table::waiter::note_key() noexcept {
  MW_ASSERT(missing_ > 0, "only a waiter that waits is in a list");
  if (--missing_ > 0) return;
  keys_ = {};
  released_(*this);
}

void key_value_table::release(waiter_lists& lists, const std::string& key) noexcept {
  const auto entry = lists.find(key);
  if (entry == lists.end()) return;
  const std::vector<waiter*> waiters = std::move(entry->second);
  lists.erase(entry);
  for (waiter* w : waiters) w->note_key();
}

void key_value_table::release_at_push(const std::string& queue) noexcept {
  const auto entry = awaited_.find(queue);
  if (entry == awaited_.end()) return;
  MW_ASSERT(!entry->second.empty(), "a list of waiters that is empty is erased");
  std::vector<waiter*> released;
  std::vector<waiter*> left;
  bool one_takes = false;
  for (waiter* w : entry->second) {
    const bool goes_on_waiting = w->takes_ && one_takes;
    one_takes = one_takes || w->takes_;
    (goes_on_waiting ? left : released).push_back(w);
  }
  if (left.empty()) {
    awaited_.erase(entry);
  } else {
    entry->second = std::move(left);
  }
  for (waiter* w : released) w->note_key();
}

}  // namespace manyworlds::inline v0::detail
