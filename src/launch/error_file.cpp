// The error file: JSON as PyTorch's agents read it, in its two forms.
#include <cxxabi.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <typeinfo>

#include "io/descriptor.hpp"
#include "launch/worker_result.hpp"
#include "manyworlds/launch/launch_context.hpp"
#include "observe/json_writer.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

namespace {

/// What is longer is cut: agents read the file whole.
constexpr std::size_t longest_recorded = 64 * 1024;
constexpr std::size_t longest_call_stack = 1024 * 1024;
/// Exceptions nested in each other are followed so far.
constexpr int deepest_nesting = 16;

std::int64_t seconds_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/// Returns the type of the exception that is being handled. It needs no run-time type
/// information of this build.
std::string type_handled() {
  const std::type_info* const type = abi::__cxa_current_exception_type();
  if (!type) return "an unknown type";
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(type->name(), nullptr, nullptr, &status), std::free);
  return status == 0 && name ? std::string(name.get()) : std::string(type->name());
}

/// Returns "std::runtime_error: text".
std::string line_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return fmt::format("{}: {}\n", type_handled(), e.what());
  } catch (...) {
    return fmt::format("an exception of type {}\n", type_handled());
  }
}

std::exception_ptr nested_in(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::nested_exception& outer) {
    return outer.nested_ptr();
  } catch (...) {
    return nullptr;
  }
}

/// Returns a line for each exception, the outer one first.
std::string lines_of(std::exception_ptr error) {
  std::string lines;
  for (int depth = 0; error && depth < deepest_nesting; ++depth) {
    lines += line_of(error);
    error = nested_in(error);
  }
  return lines;
}

/// Without a code the short form, which has no place for one.
std::string json_of(std::string_view message, std::optional<int> code,
                    std::string_view call_stack) {
  message = message.substr(0, longest_recorded);
  call_stack = call_stack.substr(0, longest_call_stack);
  json_writer json;
  json.object();
  if (!code) {
    json.field("message", message).field("timestamp", seconds_now());
    json.end_object();
    return json.take();
  }
  json.key("message").object();
  json.field("message", message).field("errorCode", *code);
  json.key("extraInfo").object();
  // PyTorch's own name for it, and a number as a text.
  json.field("py_callstack", call_stack);
  json.field("timestamp", std::to_string(seconds_now()));
  json.end_object().end_object().end_object();
  return json.take();
}

bool write_to(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

bool write_file(const std::string& path, int flags, std::string_view text) {
  const unique_descriptor file(
      ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY | flags, 0644));
  return file && write_to(file.get(), text);
}

/// Replaces the file whole, since an agent may read it at any time. What is no file is
/// written: a superuser would replace /dev/null for the whole machine.
bool replace_file(const std::string& path, std::string_view text) {
  struct stat is;
  if (::stat(path.c_str(), &is) == 0 && !S_ISREG(is.st_mode))
    return write_file(path, O_NONBLOCK, text);
  const std::string beside = fmt::format("{}.{}", path, ::getpid());
  if (write_file(beside, O_CREAT | O_TRUNC | O_NOFOLLOW, text) &&
      ::rename(beside.c_str(), path.c_str()) == 0)
    return true;
  ::unlink(beside.c_str());
  return false;
}

}  // namespace

bool launch_context::record_error(std::string_view message, std::optional<int> code,
                                  std::string_view call_stack) const noexcept {
  if (error_file.empty()) return true;
  try {
    return replace_file(error_file, json_of(message, code, call_stack));
  } catch (...) {
    return false;  // no memory for the text
  }
}

bool launch_context::give_result(std::string_view result) const noexcept {
  if (result.size() > longest_result) return false;
  if (result_file.empty()) return true;
  // It is memory of the launcher's, which no rename could replace.
  const unique_descriptor memory(
      ::open(result_file.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  return memory && is_result_memory(memory.get()) && ::ftruncate(memory.get(), 0) == 0 &&
         write_to(memory.get(), result);
}

bool launch_context::record_error(const std::exception_ptr& error,
                                  int code) const noexcept {
  try {
    const std::string lines = lines_of(error);
    return record_error(lines.substr(0, lines.find('\n')), code,
                        fmt::format("{}:\n{}", text(), lines));
  } catch (...) {
    return false;
  }
}

}  // namespace manyworlds::inline v0
