// A store server on a thread of its own, with its reports, for tests that speak its
// protocol by hand.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "store/raw_client.hpp"
#include "store/store_fixture.hpp"

namespace manyworlds_tests {

using op = tcp_store_opcode;

/// A server on a thread, and what it reported.
class served {
 public:
  explicit served(engine_kind kind, tcp_store_server_options options = {})
      : service_(kind),
        server_(service_.home(), socket_address::loopback(0), listening(options)) {}

  [[nodiscard]] socket_address address() const { return server_.address(); }
  [[nodiscard]] hosted_server& get() { return server_; }
  [[nodiscard]] reactor& home() { return service_.home(); }
  [[nodiscard]] bool reports(const std::string& text) {
    return comes_true([&] {
      const std::lock_guard lock(mutex_);
      return std::any_of(lines_.begin(), lines_.end(), [&](const auto& line) {
        return line.find(text) != std::string::npos;
      });
    });
  }
  /// A client that has greeted.
  [[nodiscard]] raw_client client() {
    raw_client c(address());
    c.greet();
    return c;
  }

 private:
  tcp_store_server_options listening(tcp_store_server_options options) {
    options.report = [this](std::string_view line) {
      const std::lock_guard lock(mutex_);
      lines_.emplace_back(line);
    };
    return options;
  }

  std::mutex mutex_;
  std::vector<std::string> lines_;
  service_thread service_;
  hosted_server server_;
};

template <class Body>
void for_each_engine(Body body) {
  for (const engine_kind kind : {engine_kind::io_uring, engine_kind::epoll}) {
    if (kind == engine_kind::io_uring && testing::io_uring_is_refused_here()) continue;
    const std::string engine = kind == engine_kind::epoll ? "epoll" : "io_uring";
    INFO("engine: ", engine);
    body(kind);
  }
}

inline std::string u64(std::uint64_t value) {
  std::string bytes;
  encode_u64(value, bytes);
  return bytes;
}
inline std::string text(const std::string& value) {
  std::string bytes;
  encode_text(value, bytes);
  return bytes;
}
// What arrives when the server has worked off everything before.
inline const std::string pong = "\x78\x56\x34\x12";
inline tcp_store_message ping() { return request(op::ping, {}, {}, 0x12345678); }

}  // namespace manyworlds_tests
