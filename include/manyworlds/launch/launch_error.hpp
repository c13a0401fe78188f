// Launch error: what a launcher has told of this process makes no sense.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <string_view>

#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0 {

/// Names the variable of the environment that is missing or makes no sense, its value and
/// what is expected of it. Copies share the text.
class MANYWORLDS_EXPORT launch_error : public std::exception {
 public:
  /// Describes a variable that is set. `expected` ends the sentence
  /// `RANK="7" was given: expected ...`.
  launch_error(std::string_view variable, std::string_view value,
               std::string_view expected);
  /// Describes a variable that is not set.
  launch_error(std::string_view variable, std::string_view expected);

  [[nodiscard]] const char* what() const noexcept override;
  /// Returns the name of the variable: "RANK".
  [[nodiscard]] const std::string& variable() const noexcept { return state_->variable; }
  /// Returns the value that was given; empty if the variable is not set.
  [[nodiscard]] const std::string& value() const noexcept { return state_->value; }
  /// Returns what is expected: "a number from 0 to 3".
  [[nodiscard]] const std::string& expected() const noexcept { return state_->expected; }
  [[nodiscard]] bool is_set() const noexcept { return state_->is_set; }

 private:
  struct state {
    std::string variable;
    std::string value;
    std::string expected;
    bool is_set = false;
    std::string text;
  };
  explicit launch_error(state fields);

  std::shared_ptr<const state> state_;
};

}  // namespace manyworlds::inline v0
