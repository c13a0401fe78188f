#include "manyworlds/launch/launch_error.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <utility>

namespace manyworlds::inline v0 {

namespace {

/// A value is shown up to here: the text of an error is one line.
constexpr std::size_t shown_of_a_value = 200;

std::string shown(std::string_view value) {
  std::string text;
  for (const char c : value.substr(0, shown_of_a_value)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f)
      text += fmt::format("\\x{:02x}", byte);
    else
      text += c;
  }
  return value.size() > shown_of_a_value ? text + "..." : text;
}

}  // namespace

launch_error::launch_error(state fields) {
  fields.text =
      fields.is_set
          ? fmt::format("{}=\"{}\" was given: expected {}", fields.variable,
                        shown(fields.value), fields.expected)
          : fmt::format("{} is not set: expected {}", fields.variable, fields.expected);
  state_ = std::make_shared<const state>(std::move(fields));
}

launch_error::launch_error(std::string_view variable, std::string_view value,
                           std::string_view expected)
    : launch_error(state{
          std::string(variable), std::string(value), std::string(expected), true, {}}) {}

launch_error::launch_error(std::string_view variable, std::string_view expected)
    : launch_error(state{std::string(variable), {}, std::string(expected), false, {}}) {}

const char* launch_error::what() const noexcept { return state_->text.c_str(); }

}  // namespace manyworlds::inline v0
