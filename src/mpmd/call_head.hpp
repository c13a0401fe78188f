// Call head: what stands before the argument of a call at a calls edge.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "manyworlds/detail/config.hpp"
#include "manyworlds/mpmd/job_placement.hpp"

namespace manyworlds::inline v0::detail {

inline constexpr std::size_t longest_method = 64;

/// What follows the head, and what the answer is. On the wire: never renumber.
enum class call_form : std::uint8_t {
  bytes = 0,   ///< any bytes
  values = 1,  ///< values as they are packed
};

struct call_head {
  std::uint64_t id = 0;
  std::string method;
  instance_id from;
  call_form form = call_form::bytes;

  friend bool operator==(const call_head&, const call_head&) = default;
};

/// Returns its bytes: id, index, form and the lengths of method and role, in this
/// machine's order of bytes, as the library's own messages; then the names.
[[nodiscard]] std::string bytes_of(const call_head& head);
/// Returns the head at the begin of a request, and takes it off; nothing if none is there
/// (law 11).
[[nodiscard]] std::optional<call_head> take_call_head(std::string_view& request);

}  // namespace manyworlds::inline v0::detail
