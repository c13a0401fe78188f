// Process output: where a program's output goes.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0 {

/// What happens to what a file has already.
enum class file_mode : std::uint8_t {
  append,
  truncate,  ///< it is dropped at the first start, and kept at a restart
};

/// One line of a program's output.
struct output_line {
  /// The bytes without the end of the line. Lifetime: until the function that was given
  /// the line returns, or its task ends.
  std::string_view text;
  /// False: more of the same line follows, which is longer than `lines` takes at once.
  bool is_whole = true;
};

/// Where a program's output goes. It is a value that `process_options::output` takes.
///
///     how.output(mw::to_file("engine.log"));
///     how.output(mw::lines([](const mw::output_line& line) { use(line.text); }));
///     how.output(mw::tee(mw::to_file("engine.log"), mw::process_output::inherit()));
class process_output {
 public:
  /// Takes a line.
  using line_function = std::function<void(const output_line&)>;
  /// Takes a line, and is awaited before the next one is read.
  using line_task = std::function<task<void>(const output_line&)>;

  /// Gives the program the starter's own output.
  [[nodiscard]] static process_output inherit() {
    process_output o;
    o.inherits_ = true;
    return o;
  }
  /// Drops the output.
  [[nodiscard]] static process_output none() { return {}; }

  /// What it consists of.
  struct file {
    std::string path;
    file_mode mode = file_mode::append;
  };
  [[nodiscard]] bool inherits() const noexcept { return inherits_; }
  [[nodiscard]] const std::vector<file>& files() const noexcept { return files_; }
  [[nodiscard]] const std::vector<line_task>& tasks() const noexcept { return tasks_; }
  [[nodiscard]] const std::vector<line_function>& functions() const noexcept {
    return functions_;
  }
  /// Returns the number of bytes of a line that are kept at most.
  [[nodiscard]] std::size_t longest_line() const noexcept { return longest_line_; }

 private:
  process_output() = default;
  friend process_output to_file(std::string path, file_mode mode);
  friend process_output tee(process_output first, process_output second);
  template <class Taker>
  friend process_output lines(Taker taker, std::size_t longest);

  bool inherits_ = false;
  std::vector<file> files_;
  std::vector<line_function> functions_;
  std::vector<line_task> tasks_;
  std::size_t longest_line_ = 0;
};

/// Sends the output into a file, which the program writes by itself: neither the end of
/// the starter nor its load disturbs it. A path without a leading slash begins in the
/// starter's folder. The file is made if it is not there.
[[nodiscard]] inline process_output to_file(std::string path,
                                            file_mode mode = file_mode::append) {
  process_output o;
  o.files_.push_back({std::move(path), mode});
  return o;
}

/// Gives each line to `taker` on the reactor. It takes `const mw::output_line&`, and
/// returns nothing or a task<void>. A task is awaited before more is read: the program
/// waits in its write once its pipe is full.
///
/// A line longer than `longest` bytes comes in pieces. What remains without an end of
/// the line at the program's end is a line.
///
/// Errors: what the taker throws is logged, and the line counts as taken.
template <class Taker>
[[nodiscard]] process_output lines(Taker taker, std::size_t longest) {
  static_assert(std::is_invocable_v<Taker&, const output_line&>,
                "lines takes a function of const mw::output_line&");
  process_output o;
  o.longest_line_ = longest > 0 ? longest : 1;
  if constexpr (std::convertible_to<std::invoke_result_t<Taker&, const output_line&>,
                                    task<void>>) {
    o.tasks_.emplace_back(std::move(taker));
  } else {
    o.functions_.emplace_back(std::move(taker));
  }
  return o;
}

/// Does the same with lines of up to 1 MiB. Errors: as there.
template <class Taker>
[[nodiscard]] process_output lines(Taker taker) {
  return lines(std::move(taker), std::size_t{1} << 20);
}

/// Sends the output to both. It passes through this process, so that the program may
/// have to wait for it: a single `to_file` is written by the program itself. Files and
/// the own output are written on a thread of their own.
[[nodiscard]] process_output tee(process_output first, process_output second);

}  // namespace manyworlds::inline v0
