#include "mpmd/call_head.hpp"

#include <cstring>

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

struct fixed_call_head {
  std::uint64_t id;
  std::uint32_t index;
  std::uint8_t method;
  call_form form;
  std::uint16_t role;
};
static_assert(sizeof(fixed_call_head) == 16);

std::string bytes_of(const call_head& head) {
  MW_ASSERT(head.method.size() <= longest_method && head.from.role.size() <= UINT16_MAX,
            "names are checked before they are sent");
  const fixed_call_head fixed{head.id, head.from.index,
                              static_cast<std::uint8_t>(head.method.size()), head.form,
                              static_cast<std::uint16_t>(head.from.role.size())};
  std::string all(sizeof fixed, '\0');
  std::memcpy(all.data(), &fixed, sizeof fixed);
  return all + head.method + head.from.role;
}

std::optional<call_head> take_call_head(std::string_view& request) {
  fixed_call_head fixed{};
  if (request.size() < sizeof fixed) return std::nullopt;
  std::memcpy(&fixed, request.data(), sizeof fixed);
  std::string_view rest = request.substr(sizeof fixed);
  const std::size_t names = std::size_t{fixed.method} + fixed.role;
  if (fixed.method > longest_method || rest.size() < names) return std::nullopt;
  if (fixed.form > call_form::values) return std::nullopt;
  call_head head;
  head.id = fixed.id;
  head.method = rest.substr(0, fixed.method);
  head.from = {std::string(rest.substr(fixed.method, fixed.role)), fixed.index};
  head.form = fixed.form;
  request = rest.substr(names);
  return head;
}

}  // namespace manyworlds::inline v0::detail
