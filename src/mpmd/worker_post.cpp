#include "mpmd/worker_post.hpp"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <utility>

#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/store/store_error.hpp"

namespace manyworlds::inline v0::detail {

constexpr const char* successor = "successor";
constexpr const char* invitation_of = "invitation";
constexpr const char* acceptance = "accepted";
constexpr const char* recall_of = "recalled";
constexpr duration pause_without_store = std::chrono::milliseconds(100);
// A worker may die between its two keys, so that the first one is looked at too.
constexpr duration between_looks_at_latest = std::chrono::seconds(1);

std::string free_worker::text() const {
  return fmt::format("{} {} {}", number, incarnation, pid);
}

free_worker free_worker::of(const std::string& text) noexcept {
  free_worker found;
  const char* const end = text.data() + text.size();
  const char* at = text.data();
  const auto read = [&](auto& value) {
    const auto [next, error] = std::from_chars(at, end, value);
    const bool is_read = error == std::errc();
    // A space stands between them.
    at = next == end ? end : next + 1;
    return is_read;
  };
  const bool is_one = read(found.number) && read(found.incarnation) && read(found.pid);
  return is_one ? found : free_worker();
}

worker_post::worker_post(store& keys, const instance_id& worker)
    : keys_(keys), prefix_(fmt::format("sessions/{}", worker.text())) {}

std::string worker_post::key(std::uint64_t number, const char* what) const {
  return fmt::format("{}/{}/{}", prefix_, number, what);
}

/// Repeats it until the store has answered; so it may be done twice.
template <class Operation>
static auto persistently(Operation operation) -> decltype(operation()) {
  for (;;) {
    bool is_away = false;
    try {
      co_return co_await operation();
    } catch (const store_error& e) {
      // The store may be back. A key that is not there in time is waited for anew.
      is_away = e.kind() == store_error_kind::unreachable;
      if (!is_away && e.kind() != store_error_kind::timed_out) throw;
    }
    if (is_away) co_await sleep_for(pause_without_store);
  }
}

static task<std::string> wait_for(store& keys, std::string key) {
  const auto get = [&keys, key = std::move(key)] {
    return keys.get(key, std::chrono::hours(1));
  };
  return persistently(get);
}

static task<void> set(store& keys, std::string key, std::string value) {
  const auto once = [&keys, key = std::move(key), value = std::move(value)] {
    return keys.set(key, value);
  };
  return persistently(once);
}

static task<std::string> exchange(store& keys, std::string key, std::string expected,
                                  std::string desired) {
  const auto once = [&keys, key = std::move(key), expected = std::move(expected),
                     desired = std::move(desired)] {
    return keys.compare_set(key, expected, desired);
  };
  return persistently(once);
}

static task<std::string> latest(store& keys, std::string key) {
  const auto get = [&keys, key = std::move(key)] { return keys.try_get(key); };
  co_return (co_await persistently(get)).value_or("");
}

// --- the worker -----------------------------------------------------------------------

/// A worker that asks again, as the answer was lost, finds its own text there.
task<std::uint64_t> worker_post::announce(std::uint64_t incarnation, std::int64_t pid) {
  std::string seen = co_await latest(keys_, prefix_);
  for (;;) {
    const free_worker last = free_worker::of(seen);
    if (last.incarnation > incarnation)
      throw std::runtime_error("a later incarnation of this instance is there");
    const free_worker self{last.number + 1, incarnation, pid};
    const std::string now = co_await exchange(keys_, prefix_, seen, self.text());
    const bool is_told = now == self.text();
    seen = now;
    if (!is_told) continue;
    co_await set(keys_, key(last.number, successor), "1");
    co_return self.number;
  }
}

task<std::string> worker_post::be_invited(std::uint64_t number) {
  const std::string told = co_await wait_for(keys_, key(number, invitation_of));
  co_await set(keys_, key(number, acceptance), "1");
  // Behind the number of its controller.
  co_return told.substr(told.find(' ') + 1);
}

task<void> worker_post::recalled(std::uint64_t number) {
  static_cast<void>(co_await wait_for(keys_, key(number, recall_of)));
}

// --- the controller -------------------------------------------------------------------

task<free_worker> worker_post::last() {
  co_return free_worker::of(co_await latest(keys_, prefix_));
}

task<free_worker> worker_post::free_after(std::uint64_t number) {
  for (;;) {
    const free_worker found = co_await last();
    if (found.number > number) co_return found;
    bool is_away = false;
    try {
      static_cast<void>(
          co_await keys_.get(key(found.number, successor), between_looks_at_latest));
    } catch (const store_error& e) {
      is_away = e.kind() == store_error_kind::unreachable;
      if (!is_away && e.kind() != store_error_kind::timed_out) throw;
    }
    if (is_away) co_await sleep_for(pause_without_store);
  }
}

task<bool> worker_post::invite(std::uint64_t number, std::uint64_t controller,
                               std::string invitation) {
  const std::string own = fmt::format("{} {}", controller, invitation);
  const std::string now = co_await exchange(keys_, key(number, invitation_of), "", own);
  if (now == own) co_return true;
  std::uint64_t other = 0;
  std::from_chars(now.data(), now.data() + now.size(), other);
  if (other > controller)
    throw std::runtime_error("a later incarnation of this controller is there");
  co_await recall(number);
  co_return false;
}

task<void> worker_post::recall(std::uint64_t number) {
  return set(keys_, key(number, recall_of), "1");
}

task<void> worker_post::accepted(std::uint64_t number) {
  static_cast<void>(co_await wait_for(keys_, key(number, acceptance)));
}

}  // namespace manyworlds::inline v0::detail
