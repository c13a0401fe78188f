#include "mpmd/job_meeting.hpp"

#include <fmt/format.h>

#include <charconv>
#include <chrono>

#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/store/store_error.hpp"

namespace manyworlds::inline v0::detail {

constexpr const char* key_of_term = "term";
constexpr const char* status_key = "status";
constexpr const char* stop_key = "stop";
constexpr duration between_announcements = std::chrono::seconds(2);
// The pause after a store that does not answer.
constexpr duration between_tries = std::chrono::milliseconds(100);
constexpr duration longest_wait = std::chrono::hours(1);

job_meeting::job_meeting(store& all, const std::string& job)
    : keys_("manyworlds/graph/" + job, all) {}

static std::uint64_t term_of(std::string_view text) noexcept {
  std::uint64_t term = 0;
  std::from_chars(text.data(), text.data() + text.size(), term);
  return term;
}

static std::string successor_key(std::uint64_t term) {
  return fmt::format("after/{}", term);
}

/// Each term has a key that is set when another follows it, for those who wait.
task<void> job_meeting::announce(std::uint64_t term) {
  std::string seen = (co_await keys_.try_get(key_of_term)).value_or("");
  while (term_of(seen) < term) {
    const std::string wanted = std::to_string(term);
    const std::string now = co_await keys_.compare_set(key_of_term, seen, wanted);
    if (now == wanted) {
      co_await keys_.set(successor_key(term_of(seen)), wanted);
      co_return;
    }
    // Of a key that is gone a store says what was expected.
    seen = now == seen ? (co_await keys_.try_get(key_of_term)).value_or("") : now;
  }
}

task<std::uint64_t> job_meeting::announced() {
  co_return term_of((co_await keys_.try_get(key_of_term)).value_or(""));
}

/// A master may die between its two keys, so that the first one is looked at too.
task<std::uint64_t> job_meeting::announced_above(std::uint64_t term) {
  for (;;) {
    std::uint64_t now = 0;
    bool is_away = false;
    try {
      now = co_await announced();
      if (now > term) co_return now;
      static_cast<void>(co_await keys_.get(successor_key(now), between_announcements));
    } catch (const store_error& e) {
      // It may be back. Until then everything stays as it is (law G-c).
      is_away = e.kind() != store_error_kind::timed_out;
    }
    if (is_away) co_await sleep_for(between_tries);
  }
}

task<void> job_meeting::publish(std::string status) {
  co_await keys_.set(status_key, std::move(status));
}

task<std::optional<std::string>> job_meeting::published() {
  co_return co_await keys_.try_get(status_key);
}

task<void> job_meeting::ask_to_stop(std::string why) {
  if (why.empty()) why = "it was told to stop";
  co_await keys_.set(stop_key, std::move(why));
}

task<std::string> job_meeting::asked_to_stop() {
  for (;;) {
    bool is_away = false;
    try {
      co_return co_await keys_.get(stop_key, longest_wait);
    } catch (const store_error& e) {
      is_away = e.kind() != store_error_kind::timed_out;
    }
    if (is_away) co_await sleep_for(between_tries);
  }
}

service_name job_meeting::agents_of(std::uint64_t term) {
  return service_name(fmt::format("agents-{}", term));
}

service_name job_meeting::standbys_of(const std::string& master) {
  return service_name(fmt::format("master-{}", master));
}

service_name job_meeting::workloads_of(const std::string& node) {
  return service_name(fmt::format("node-{}", node));
}

}  // namespace manyworlds::inline v0::detail
