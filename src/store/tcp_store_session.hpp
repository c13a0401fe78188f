// TCPStore session: one client's connection to a server.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "io/stream.hpp"
#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/scope.hpp"
#include "store/key_value_table.hpp"
#include "store/tcp_store_protocol.hpp"
#include "store/tcp_store_server.hpp"

namespace manyworlds::inline v0::detail {

/// Reads requests and writes replies in two tasks. So a client that waits for a key can
/// be heard (it may give up, or go away), and one that does not read its replies delays
/// no other.
class tcp_store_session {
 public:
  tcp_store_session(tcp_store_server& server, stream& client) noexcept;
  ~tcp_store_session();

  /// Serves the connection until it ends.
  task<void> run();
  /// Says why the server ended it; empty if the client did.
  [[nodiscard]] const std::string& error() const noexcept { return error_; }

 private:
  /// The one WAIT or BARRIER that the client may have outstanding.
  struct blocked_request final : key_value_table::waiter {
    explicit blocked_request(tcp_store_session& owner) noexcept;
    tcp_store_session& owner;
  };

  /// What the client is told of the keys that it watches.
  struct watched_keys final : key_value_table::watcher {
    explicit watched_keys(tcp_store_session& owner) noexcept;
    tcp_store_session& owner;
    std::size_t bytes = 0;
  };

  task<void> read(scope& both);
  task<void> read_requests();
  task<void> write(scope& both);
  task<io_result> receive(time_point handshake_until);
  [[nodiscard]] bool may_stay_silent() const noexcept;
  task<bool> admit(std::span<const std::byte> begun, time_point handshake_until);

  bool apply(tcp_store_message request);
  bool has_room_for(const tcp_store_message& request);
  bool change(tcp_store_message& request);
  bool block(tcp_store_message& request);
  bool reply_values(const std::vector<std::string>& keys);
  bool reply_key_list();
  void reply_queue_pop(const std::string& key);
  void watch(const std::string& key);
  bool account();
  bool end(std::string why);

  tcp_store_server& server_;
  stream& client_;
  tcp_store_parser parser_;
  blocked_request blocked_;
  /// What the request `blocked_` occupies while it waits.
  std::size_t blocked_bytes_ = 0;
  watched_keys watched_;
  /// The key of its last wait, which may be a queue that it takes from next.
  std::string may_take_from_;
  std::string outgoing_;
  std::string sending_;
  event has_outgoing_;
  event has_room_;
  std::vector<std::byte> incoming_;
  const std::string host_;
  bool is_legacy_ = false;
  bool is_admitted_ = false;
  /// Its part of the server's `held_bytes`.
  std::size_t accounted_ = 0;
  std::string error_;
};

}  // namespace manyworlds::inline v0::detail
