// The values of a call at a calls edge: whatever the text, it is refused, or what was
// read is the same when it is packed again.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "input.hpp"
#include "manyworlds/detail/packed_values.hpp"
#include "manyworlds/failure.hpp"
#include "manyworlds/spmd/any_value.hpp"

using namespace manyworlds;
using fuzzing::must;

namespace {

/// Reads the values as arguments of these types.
template <class... P>
void read_as(std::string_view text) {
  std::optional<detail::unpacked_values> from;
  std::tuple<detail::unpacked_argument<P>...> once;
  try {
    from.emplace(detail::unpacked_arguments(text));
    once = detail::read_arguments<P...>(*from);
  } catch (const world_error& e) {
    must(e.cause() == cause::invalid_argument);
    return;
  }
  // Outside: an error of what follows is one of ours.
  const auto pack = [](const auto&... each) {
    return detail::pack_arguments<P...>(each.value...);
  };
  const std::string packed = std::apply(pack, once);
  detail::unpacked_values again = detail::unpacked_arguments(packed);
  const auto twice = detail::read_arguments<P...>(again);
  must(std::apply(pack, twice) == packed);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 5) {
    case 0:
      read_as<>(text);
      break;
    case 1:
      read_as<std::int64_t, std::string>(text);
      break;
    case 2:
      read_as<std::vector<float>, bool>(text);
      break;
    case 3:
      read_as<any_value>(text);
      break;
    default:
      read_as<std::vector<std::string>, std::optional<double>>(text);
      break;
  }
  return 0;
}
