#include "host/algorithm_table.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "host/collective_algorithms.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

namespace {

/// One way to carry out one kind of collective.
struct algorithm_entry {
  operation_kind kind;
  algorithm use;
  host::collective_function carry_out;
};

// All that there is: an algorithm does a kind if it stands here with it.
constexpr auto algorithms = [] {
  using enum operation_kind;
  using enum algorithm;
  using namespace host;
  return std::array{
      algorithm_entry{barrier, flat, barrier_of_all},
      algorithm_entry{barrier, logarithmic, barrier_by_dissemination},

      algorithm_entry{broadcast, flat, broadcast_to_all},
      algorithm_entry{broadcast, logarithmic, broadcast_by_tree},
      algorithm_entry{broadcast, ring, broadcast_in_ring},

      algorithm_entry{reduce, flat, reduce_at_root},
      algorithm_entry{reduce, direct, reduce_directly},
      algorithm_entry{reduce, logarithmic, reduce_by_tree},
      algorithm_entry{reduce, ring, reduce_in_ring},

      algorithm_entry{all_reduce, flat, all_reduce_at_each},
      algorithm_entry{all_reduce, direct, all_reduce_directly},
      algorithm_entry{all_reduce, logarithmic, all_reduce_by_doubling},
      algorithm_entry{all_reduce, ring, all_reduce_in_ring},

      algorithm_entry{all_gather, flat, all_gather_at_once},
      algorithm_entry{all_gather, ring, all_gather_in_ring},

      algorithm_entry{reduce_scatter, direct, reduce_scatter_directly},
      algorithm_entry{reduce_scatter, ring, reduce_scatter_in_ring},

      algorithm_entry{gather, flat, gather_at_root},
      algorithm_entry{scatter, flat, scatter_from_root},
      algorithm_entry{all_to_all, flat, all_to_all_at_once},
  };
}();

constexpr std::size_t kinds = static_cast<std::size_t>(operation_kind::call) + 1;
constexpr std::size_t ways = static_cast<std::size_t>(algorithm::ring) + 1;

constexpr auto index_of(operation_kind kind) noexcept {
  return static_cast<std::size_t>(kind);
}
constexpr auto index_of(algorithm use) noexcept { return static_cast<std::size_t>(use); }

/// The same by kind and algorithm, so that a small collective does not search; null
/// where nothing stands.
constexpr auto functions = [] {
  std::array<std::array<host::collective_function, ways>, kinds> all{};
  for (const algorithm_entry& e : algorithms)
    all[index_of(e.kind)][index_of(e.use)] = e.carry_out;
  return all;
}();

constexpr host::collective_function function_of(operation_kind kind,
                                                algorithm use) noexcept {
  if (index_of(kind) >= kinds || index_of(use) >= ways) return nullptr;
  return functions[index_of(kind)][index_of(use)];
}

constexpr bool each_stands_once() noexcept {
  return std::all_of(algorithms.begin(), algorithms.end(), [](const algorithm_entry& e) {
    return e.carry_out && function_of(e.kind, e.use) == e.carry_out;
  });
}
static_assert(each_stands_once(), "one function carries out a kind by an algorithm");

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

constexpr bool every_rule_is_possible() noexcept {
  return std::all_of(rules.begin(), rules.end(), [](const algorithm_rule& r) {
    return function_of(r.kind, r.use) != nullptr;
  });
}
static_assert(every_rule_is_possible(), "a default rule names an algorithm that exists");

constexpr bool each_kind_has_a_rule() noexcept {
  return std::all_of(algorithms.begin(), algorithms.end(), [](const algorithm_entry& e) {
    return std::any_of(rules.begin(), rules.end(), [&](const algorithm_rule& r) {
      return r.kind == e.kind && r.where == placement::anywhere &&
             r.members_at_most == any_number && r.bytes_at_most == any_bytes;
    });
  });
}
static_assert(each_kind_has_a_rule(), "a default rule fits every extent of a kind");

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
  return function_of(kind, a) != nullptr;
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
  MW_ASSERT(false, "a default rule fits every collective");
  return algorithm::flat;
}

bool has_rule_for(std::span<const algorithm_rule> own,
                  const collective_extent& extent) noexcept {
  return std::any_of(own.begin(), own.end(),
                     [&](const algorithm_rule& r) { return fits(r, extent); });
}

collective_function function_for(operation_kind kind, algorithm use) noexcept {
  return function_of(kind, use);
}

}  // namespace detail::host

}  // namespace manyworlds::inline v0
