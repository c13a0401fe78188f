#include "mpmd/worker_post.hpp"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <optional>
#include <utility>

#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/store/store_error.hpp"

namespace manyworlds::inline v0::detail {

constexpr const char* successor = "successor";
constexpr const char* invitation_of = "invitation";
constexpr const char* acceptance = "accepted";
constexpr const char* recall = "wanted-back";
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

/// Does it until the store has answered; so it may be done twice.
template <class Operation>
static auto persistently(Operation operation) -> decltype(operation()) {
  for (;;) {
    bool is_away = false;
    try {
      co_return co_await operation();
    } catch (const store_error& e) {
      // The store may be back. A key that is not there in time is waited for anew.
      is_away = e.kind() != store_error_kind::timed_out;
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

static task<free_worker> latest(store& keys, std::string key) {
  const auto get = [&keys, key = std::move(key)] { return keys.try_get(key); };
  co_return free_worker::of((co_await persistently(get)).value_or(""));
}

// --- the worker -----------------------------------------------------------------------

/// A worker that asks again, as the answer was lost, finds its own text there.
task<std::uint64_t> worker_post::announce(std::uint64_t incarnation, std::int64_t pid) {
  free_worker seen = co_await latest(keys_, prefix_);
  free_worker self;
  for (;;) {
    self = {seen.number + 1, incarnation, pid};
    const std::string before = seen.number == 0 ? std::string() : seen.text();
    const std::string now = co_await exchange(keys_, prefix_, before, self.text());
    if (now == self.text()) break;
    seen = free_worker::of(now);
  }
  co_await set(keys_, key(seen.number, successor), "1");
  co_return self.number;
}

task<std::string> worker_post::be_invited(std::uint64_t number) {
  std::string invitation = co_await wait_for(keys_, key(number, invitation_of));
  co_await set(keys_, key(number, acceptance), "1");
  co_return invitation;
}

task<void> worker_post::wanted_back(std::uint64_t number) {
  static_cast<void>(co_await wait_for(keys_, key(number, recall)));
}

// --- the controller -------------------------------------------------------------------

task<free_worker> worker_post::free_after(std::uint64_t number) {
  for (;;) {
    const free_worker last = co_await latest(keys_, prefix_);
    if (last.number > number) co_return last;
    bool is_away = false;
    try {
      static_cast<void>(
          co_await keys_.get(key(last.number, successor), between_looks_at_latest));
    } catch (const store_error& e) {
      is_away = e.kind() != store_error_kind::timed_out;
    }
    if (is_away) co_await sleep_for(pause_without_store);
  }
}

task<bool> worker_post::invite(std::uint64_t number, std::string invitation) {
  const std::string now =
      co_await exchange(keys_, key(number, invitation_of), "", invitation);
  if (now == invitation) co_return true;
  co_await set(keys_, key(number, recall), "1");
  co_return false;
}

task<void> worker_post::accepted(std::uint64_t number) {
  static_cast<void>(co_await wait_for(keys_, key(number, acceptance)));
}

}  // namespace manyworlds::inline v0::detail
