// Output pump: brings what a program writes to those who take it here.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "io/descriptor.hpp"
#include "io/reactor.hpp"
#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/worker_thread.hpp"
#include "manyworlds/launch/process_output.hpp"

namespace manyworlds::inline v0::detail {

/// Reads the output of one start of a program. It reads no faster than the output is
/// taken, and keeps no more than one part and one line. Thread: the reactor's.
class output_pump {
 public:
  using log_function = std::function<void(const std::string&)>;

  /// `own` is the descriptor that inherited output goes to. No function is called once
  /// `functions_gone` was triggered. Errors: std::system_error with the path of a file
  /// that cannot be opened.
  output_pump(reactor& home, const process_output& to, bool is_first_start, int own,
              log_function log, std::stop_token functions_gone);
  output_pump(const output_pump&) = delete;
  output_pump& operator=(const output_pump&) = delete;

  /// Opens the pipe, and returns the end that the program gets. Errors:
  /// std::system_error.
  [[nodiscard]] unique_descriptor open_pipe();
  /// Adds what a simulated program writes.
  void add_simulated(std::string_view written);

  /// Reads until all writers have closed their ends, or `close`.
  [[nodiscard]] task<void> run();
  /// Says that the program has ended, though its descendants may go on writing.
  void note_end() noexcept;
  /// Is set when all that the program wrote was taken.
  [[nodiscard]] event& drained() noexcept { return drained_; }
  /// Ends the reading. What was read already is taken.
  void close() noexcept { closing_.request_stop(); }

 private:
  [[nodiscard]] task<std::size_t> read(std::span<char> into);
  [[nodiscard]] task<std::size_t> read_simulated(std::span<char> into);
  [[nodiscard]] task<void> write(std::string_view written);
  [[nodiscard]] task<void> split(std::string_view written);
  [[nodiscard]] task<void> give(output_line line);
  void give_functions(const output_line& line);
  void tell_thrown() const;

  reactor& home_;
  const process_output to_;
  log_function log_;
  unique_descriptor pipe_;
  std::vector<unique_descriptor> files_;
  std::vector<int> written_;
  std::unique_ptr<worker_thread> writer_;
  std::string begun_;  ///< of a line
  std::stop_source closing_;
  std::stop_token functions_gone_;
  event drained_;
  bool has_ended_ = false;
  bool is_waiting_ = false;
  bool is_simulated_ = false;
  std::string simulated_;
  event more_;
};

}  // namespace manyworlds::inline v0::detail
