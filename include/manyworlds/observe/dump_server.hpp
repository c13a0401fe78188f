// Dump server: answers `mwstat PID` over a Unix socket, on a thread of its own.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace manyworlds::inline v0 {

/// Listens on an abstract Unix socket named after the process until destroyed. A client sends "text" or
/// "json" and reads the answer to its end. Only the same user, or root, is answered.
class dump_server {
 public:
  using source = std::function<std::string(bool as_json)>;

  /// Throws std::system_error.
  explicit dump_server(source dump);
  dump_server(const dump_server&) = delete;
  dump_server& operator=(const dump_server&) = delete;
  ~dump_server();

 private:
  void serve() noexcept;

  source dump_;
  int listening_ = -1;
  int end_[2] = {-1, -1};
  std::thread thread_;
};

}  // namespace manyworlds::inline v0
