#include "mpmd/visible_gpus.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <system_error>

namespace manyworlds::inline v0::detail {

namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t\r\n";
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

/// Returns the position of the only UUID that begins so.
std::optional<std::size_t> position_of(std::string_view beginning,
                                       const std::vector<std::string>& uuids) {
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < uuids.size(); ++i) {
    if (!uuids[i].starts_with(beginning)) continue;
    if (found) return std::nullopt;
    found = i;
  }
  return found;
}

std::optional<visible_gpu> gpu_named(std::string_view name,
                                     const std::vector<std::string>& uuids) {
  constexpr std::string_view of_gpu = "GPU-";
  constexpr std::string_view of_part = "MIG-";
  if (name.starts_with(of_part) && name.size() > of_part.size()) {
    visible_gpu part{std::string(name)};
    const std::string_view whole = name.substr(of_part.size());
    if (whole.starts_with(of_gpu)) {
      const auto found = position_of(whole.substr(0, whole.find('/')), uuids);
      if (found) part.position = *found;
    }
    return part;
  }
  std::optional<std::size_t> position;
  if (name.starts_with(of_gpu) && name.size() > of_gpu.size()) {
    position = position_of(name, uuids);
  } else {
    std::size_t index = 0;
    const char* const end = name.data() + name.size();
    const auto parsed = std::from_chars(name.data(), end, index);
    if (parsed.ec == std::errc() && parsed.ptr == end) position = index;
  }
  if (!position || *position >= uuids.size() || uuids[*position].empty())
    return std::nullopt;
  return visible_gpu{uuids[*position], *position};
}

}  // namespace

std::vector<visible_gpu> visible_gpus(std::string_view value,
                                      const std::vector<std::string>& uuids) {
  std::vector<visible_gpu> seen;
  for (std::size_t at = 0; at <= value.size();) {
    const std::size_t end = std::min(value.find(',', at), value.size());
    std::optional<visible_gpu> gpu =
        gpu_named(trimmed(value.substr(at, end - at)), uuids);
    at = end + 1;
    const bool is_new = gpu && std::none_of(seen.begin(), seen.end(), [&](const auto& s) {
                          return s.name == gpu->name;
                        });
    if (!is_new) break;
    seen.push_back(*std::move(gpu));
  }
  return seen;
}

}  // namespace manyworlds::inline v0::detail
