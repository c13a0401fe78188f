// Instance fact: what an instance has recorded for its next incarnation, and its limits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0::detail {

inline constexpr std::size_t largest_fact = std::size_t{64} * 1024;
inline constexpr std::size_t longest_fact_key = 128;
/// Of one instance. All of them travel in one message to the next incarnation.
inline constexpr std::size_t most_facts = 64;
inline constexpr std::size_t most_fact_bytes = std::size_t{1024} * 1024;
/// Of a job: a context in etcd has at most 32 MiB, and no workload may fill it, since
/// then no master could record anything.
inline constexpr std::size_t most_fact_bytes_of_job = std::size_t{24} * 1024 * 1024;

/// Returns what is wrong with a fact by itself; empty if nothing is. A key is part of the
/// key of a row, and is printed.
[[nodiscard]] inline std::string_view objection_to_fact(std::string_view key,
                                                        std::size_t bytes) noexcept {
  const auto is_plain = [](char c) { return c > ' ' && c < '\x7f' && c != '/'; };
  if (key.empty() || key.size() > longest_fact_key ||
      !std::all_of(key.begin(), key.end(), is_plain))
    return "a fact's key is 1 to 128 printable characters of ASCII, without space and /";
  if (bytes > largest_fact) return "a fact has at most 64 KiB";
  return {};
}

}  // namespace manyworlds::inline v0::detail
