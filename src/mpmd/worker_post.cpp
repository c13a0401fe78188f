#include "mpmd/worker_post.hpp"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <stdexcept>
#include <utility>

namespace manyworlds::inline v0::detail {

constexpr const char* successor = "successor";
constexpr const char* invitation_of = "invitation";
constexpr const char* acceptance = "accepted";
constexpr const char* recall_of = "recalled";
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

// --- the worker -----------------------------------------------------------------------

/// A worker that asks again, as the answer was lost, finds its own text there.
task<std::uint64_t> worker_post::announce(std::uint64_t incarnation, std::int64_t pid) {
  std::string seen = co_await keys_.latest(prefix_);
  for (;;) {
    const free_worker last = free_worker::of(seen);
    if (last.incarnation > incarnation)
      throw std::runtime_error("a later incarnation of this instance is there");
    const free_worker self{last.number + 1, incarnation, pid};
    std::string now = co_await keys_.exchange(prefix_, seen, self.text());
    const bool is_told = now == self.text();
    // Of a key that is gone a store says what was expected.
    if (!is_told && now == seen) now = co_await keys_.latest(prefix_);
    seen = std::move(now);
    if (!is_told) continue;
    co_await keys_.set(key(last.number, successor), "1");
    co_return self.number;
  }
}

task<std::string> worker_post::be_invited(std::uint64_t number) {
  const std::string told = co_await keys_.get(key(number, invitation_of));
  co_await keys_.set(key(number, acceptance), "1");
  // Behind the number of its controller.
  co_return told.substr(told.find(' ') + 1);
}

task<void> worker_post::recalled(std::uint64_t number) {
  static_cast<void>(co_await keys_.get(key(number, recall_of)));
}

// --- the controller -------------------------------------------------------------------

task<free_worker> worker_post::last() {
  co_return free_worker::of(co_await keys_.latest(prefix_));
}

task<free_worker> worker_post::free_after(std::uint64_t number) {
  for (;;) {
    const free_worker found = co_await last();
    if (found.number > number) co_return found;
    static_cast<void>(
        co_await keys_.get_within(key(found.number, successor), between_looks_at_latest));
  }
}

task<bool> worker_post::invite(std::uint64_t number, std::uint64_t controller,
                               std::string invitation) {
  const std::string own = fmt::format("{} {}", controller, invitation);
  const std::string now = co_await keys_.exchange(key(number, invitation_of), "", own);
  if (now == own) co_return true;
  std::uint64_t other = 0;
  std::from_chars(now.data(), now.data() + now.size(), other);
  if (other > controller)
    throw std::runtime_error("a later incarnation of this controller is there");
  co_await recall(number);
  co_return false;
}

task<void> worker_post::recall(std::uint64_t number) {
  return keys_.set(key(number, recall_of), "1");
}

task<void> worker_post::accepted(std::uint64_t number) {
  static_cast<void>(co_await keys_.get(key(number, acceptance)));
}

}  // namespace manyworlds::inline v0::detail
