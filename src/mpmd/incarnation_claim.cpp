#include "mpmd/incarnation_claim.hpp"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <utility>

#include "manyworlds/coro/sleep.hpp"

namespace manyworlds::inline v0::detail {

// Where a store that was emptied meanwhile has no follower's key: seldom enough for a
// thousand instances.
constexpr duration between_looks_at_claims = std::chrono::seconds(30);

incarnation_claim::incarnation_claim(store& keys, const instance_id& instance,
                                     std::uint64_t incarnation)
    : keys_(keys),
      instance_(instance),
      incarnation_(incarnation),
      prefix_(fmt::format("incarnations/{}", instance.text())) {}

std::string incarnation_claim::key_of_follower(std::uint64_t of) const {
  return fmt::format("{}/{}", prefix_, of);
}

static std::uint64_t number_in(const std::string& text) noexcept {
  std::uint64_t found = 0;
  std::from_chars(text.data(), text.data() + text.size(), found);
  return found;
}

void incarnation_claim::refuse_followed(std::uint64_t latest) const {
  if (latest > incarnation_)
    throw std::runtime_error(
        fmt::format("incarnation {} of {} has followed this one, {}: it has its place",
                    latest, instance_.text(), incarnation_));
}

/// It may die between its two keys. So the first one is for the process that it follows:
/// an incarnation that finds the second would not tell that process.
task<void> incarnation_claim::take() {
  const std::string own = std::to_string(incarnation_);
  std::string seen = co_await keys_.latest(prefix_);
  while (seen != own) {
    const std::uint64_t before = number_in(seen);
    refuse_followed(before);
    if (before != 0) co_await keys_.set(key_of_follower(before), own);
    std::string now = co_await keys_.exchange(prefix_, seen, own);
    // Of a key that is gone a store says what was expected.
    if (now == seen) now = co_await keys_.latest(prefix_);
    seen = std::move(now);
  }
}

task<void> incarnation_claim::until_followed() {
  for (;;) {
    refuse_followed(number_in(co_await keys_.latest(prefix_)));
    const std::optional<std::string> follower =
        co_await keys_.get_within(key_of_follower(incarnation_), between_looks_at_claims);
    if (!follower) continue;
    refuse_followed(number_in(*follower));
    // What cannot be read is no follower's.
    co_await sleep_for(between_looks_at_claims);
  }
}

}  // namespace manyworlds::inline v0::detail
