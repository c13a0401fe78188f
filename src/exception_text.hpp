// Exception text: what an exception says, for logs and errors.
#pragma once

#include <exception>
#include <string>

namespace manyworlds::inline v0::detail {

/// Returns what the exception that is being handled says. Precondition: one is.
[[nodiscard]] inline std::string handled_exception_text() {
  try {
    throw;
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception of a type not derived from std::exception";
  }
}

/// Returns what it says. Precondition: it is not null.
[[nodiscard]] inline std::string exception_text(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (...) {
    return handled_exception_text();
  }
}

}  // namespace manyworlds::inline v0::detail
