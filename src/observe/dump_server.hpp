// Dump server: answers `mwstat PID` over a Unix socket, on a thread of its own.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0::detail {

class event_counter;
class unique_descriptor;

/// Listens on the abstract Unix socket "manyworlds-PID-N" until destroyed; N counts the
/// servers of one process. A client sends "text" or "json" and a newline, and reads the
/// answer to its end. Only the same user, or root, is answered. Clients are served one
/// after the other: each has a second to ask, and a limit for taking the whole answer.
class dump_server {
 public:
  /// Makes the answer. Thread: the server's.
  using source = std::function<std::string(bool as_json)>;
  using clock = std::chrono::steady_clock;

  /// Errors: std::system_error.
  explicit dump_server(source dump,
                       clock::duration answer_patience = std::chrono::seconds(5));
  dump_server(const dump_server&) = delete;
  dump_server& operator=(const dump_server&) = delete;
  /// Waits for the answer that is being made, if any. A forked child has no such
  /// thread: there it only closes the descriptors.
  ~dump_server();

  /// Returns the socket's name without the leading zero byte.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  void serve() noexcept;
  void answer(int client);
  [[nodiscard]] bool await(int descriptor, short events, clock::time_point until) const;

  source dump_;
  clock::duration answer_patience_;
  std::string name_;
  int owner_ = 0;
  std::unique_ptr<unique_descriptor> listening_;
  std::unique_ptr<event_counter> ending_;
  std::thread thread_;
};

}  // namespace manyworlds::inline v0::detail
