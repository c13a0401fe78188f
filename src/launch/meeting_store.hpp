// Meeting store: the store of a rendezvous at its endpoint, which one agent serves.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/io/socket_address.hpp"
#include "manyworlds/launch/rendezvous.hpp"
#include "manyworlds/store/tcp_store.hpp"
#include "store/tcp_store_server.hpp"

namespace manyworlds::inline v0::detail {

/// A store that is served until this is destroyed. That blocks no reactor: the service
/// thread ends the server in its own time.
class served_store {
 public:
  served_store(runtime& rt, std::shared_ptr<tcp_store_server> server);
  served_store(const served_store&) = delete;
  served_store& operator=(const served_store&) = delete;
  ~served_store();

 private:
  runtime& runtime_;
  const std::shared_ptr<tcp_store_server> server_;
};

/// A client of the store at the endpoint, and a way to become its server.
class meeting_store {
 public:
  meeting_store(runtime& rt, const rendezvous_options& options);

  [[nodiscard]] tcp_store& client() noexcept { return client_; }
  [[nodiscard]] const std::string& endpoint() const noexcept { return endpoint_; }
  /// Serves at the endpoint, if it is of this machine and no other process does. Errors:
  /// std::system_error for another cause.
  task<std::unique_ptr<served_store>> try_to_serve();
  /// Says why the last try served nothing.
  [[nodiscard]] const std::string& objection() const noexcept { return objection_; }

 private:
  [[nodiscard]] std::unique_ptr<served_store> serve_at(const socket_address& address,
                                                       bool& is_taken);
  [[nodiscard]] socket_address reachable(const socket_address& address) const;

  runtime& runtime_;
  const std::string endpoint_;
  const tcp_store_server_options how_;
  std::string objection_;
  tcp_store client_;
};

}  // namespace manyworlds::inline v0::detail
