#include "testing/simulated_clockwork.hpp"

#include <fmt/format.h>

namespace manyworlds::inline v0 {

using namespace detail;

namespace {

constexpr std::uint64_t fnv_prime = 0x100000001b3u;

void mix_in(std::uint64_t& hash, std::uint64_t value) noexcept {
  hash = (hash ^ value) * fnv_prime;
  hash ^= hash >> 29;
}

void mix_in(std::uint64_t& hash, std::string_view text) noexcept {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * fnv_prime;
}

}  // namespace

void simulated_clockwork::record(std::string_view process, std::string_view what,
                                 std::int64_t subject, std::uint64_t amount) {
  const simulated_event e{steps, now - beginning, process, what, subject, amount};
  mix_in(fingerprint, e.step);
  mix_in(fingerprint, static_cast<std::uint64_t>(e.time.count()));
  mix_in(fingerprint, e.process);
  mix_in(fingerprint, e.what);
  mix_in(fingerprint, static_cast<std::uint64_t>(subject));
  mix_in(fingerprint, amount);
  if (sink) sink(e);
}

std::string simulated_event::text() const {
  const double microseconds = static_cast<double>(time.count()) / 1e3;
  return fmt::format("{:6} {:12.3f} us  {}: {} {} ({})", step, microseconds, process,
                     what, subject, amount);
}

}  // namespace manyworlds::inline v0
