#include "host/algorithm_table.hpp"

#include <array>
#include <limits>

namespace manyworlds::inline v0 {

using namespace detail;

namespace {

constexpr rank_t any_number = std::numeric_limits<rank_t>::max();
constexpr std::size_t any_bytes = std::numeric_limits<std::size_t>::max();
constexpr std::size_t kib = 1024;

// The numbers come from mwbench's collectives, 2 and 4 members on 2 CPUs. One step
// beats a tree as long as its additional copies cost less than a wake-up (1 us on one
// CPU, 35 us across two that sleep).
constexpr auto rules = [] {
  using enum operation_kind;
  using enum algorithm;
  return std::array{
      algorithm_rule{barrier, placement::one_host, 8, any_bytes, flat},
      algorithm_rule{barrier, placement::anywhere, any_number, any_bytes, logarithmic},

      algorithm_rule{broadcast, placement::one_host, any_number, any_bytes, flat},
      algorithm_rule{broadcast, placement::anywhere, 3, any_bytes, flat},
      algorithm_rule{broadcast, placement::anywhere, any_number, 64 * kib, logarithmic},
      algorithm_rule{broadcast, placement::anywhere, any_number, any_bytes, ring},

      algorithm_rule{reduce, placement::one_host, 2, any_bytes, flat},
      algorithm_rule{reduce, placement::one_host, 16, 16 * kib, flat},
      algorithm_rule{reduce, placement::one_host, any_number, 16 * kib, logarithmic},
      algorithm_rule{reduce, placement::one_host, any_number, any_bytes, direct},
      algorithm_rule{reduce, placement::anywhere, 4, 16 * kib, flat},
      algorithm_rule{reduce, placement::anywhere, any_number, 64 * kib, logarithmic},
      algorithm_rule{reduce, placement::anywhere, any_number, any_bytes, ring},

      algorithm_rule{all_reduce, placement::one_host, 8, 8 * kib, flat},
      algorithm_rule{all_reduce, placement::one_host, any_number, 8 * kib, logarithmic},
      algorithm_rule{all_reduce, placement::one_host, any_number, any_bytes, direct},
      algorithm_rule{all_reduce, placement::anywhere, 4, 4 * kib, flat},
      algorithm_rule{all_reduce, placement::anywhere, any_number, 32 * kib, logarithmic},
      algorithm_rule{all_reduce, placement::anywhere, 4, any_bytes, direct},
      algorithm_rule{all_reduce, placement::anywhere, any_number, any_bytes, ring},

      algorithm_rule{all_gather, placement::one_host, any_number, any_bytes, flat},
      algorithm_rule{all_gather, placement::anywhere, any_number, 256 * kib, flat},
      algorithm_rule{all_gather, placement::anywhere, any_number, any_bytes, ring},

      algorithm_rule{reduce_scatter, placement::one_host, any_number, any_bytes, direct},
      algorithm_rule{reduce_scatter, placement::anywhere, any_number, 256 * kib, direct},
      algorithm_rule{reduce_scatter, placement::anywhere, any_number, any_bytes, ring},

      algorithm_rule{gather, placement::anywhere, any_number, any_bytes, flat},
      algorithm_rule{scatter, placement::anywhere, any_number, any_bytes, flat},
      algorithm_rule{all_to_all, placement::anywhere, any_number, any_bytes, flat},
  };
}();

}  // namespace

std::span<const algorithm_rule> default_algorithms() noexcept { return rules; }

std::string_view name_of(algorithm a) noexcept {
  using enum algorithm;
  switch (a) {
    case flat:
      return "flat";
    case direct:
      return "direct";
    case logarithmic:
      return "logarithmic";
    case ring:
      return "ring";
  }
  return "unknown";
}

bool can_do(algorithm a, operation_kind kind) noexcept {
  using enum operation_kind;
  using enum algorithm;
  switch (kind) {
    case barrier:
      return a == flat || a == logarithmic;
    case broadcast:
      return a == flat || a == logarithmic || a == ring;
    case reduce:
    case all_reduce:
      return a == flat || a == direct || a == logarithmic || a == ring;
    case all_gather:
      return a == flat || a == ring;
    case reduce_scatter:
      return a == direct || a == ring;
    case gather:
    case scatter:
    case all_to_all:
      return a == flat;
    default:
      return false;
  }
}

namespace detail::host {

namespace {

bool fits(const algorithm_rule& r, const collective_extent& extent) noexcept {
  const bool placed = r.where == placement::anywhere ||
                      (r.where == placement::one_host) == extent.one_host;
  return r.kind == extent.kind && placed && extent.members <= r.members_at_most &&
         extent.bytes <= r.bytes_at_most && can_do(r.use, r.kind);
}

}  // namespace

algorithm choose_algorithm(std::span<const algorithm_rule> own,
                           const collective_extent& extent) noexcept {
  for (const algorithm_rule& r : own) {
    if (fits(r, extent)) return r.use;
  }
  for (const algorithm_rule& r : rules) {
    if (fits(r, extent)) return r.use;
  }
  return algorithm::flat;
}

}  // namespace detail::host

}  // namespace manyworlds::inline v0
