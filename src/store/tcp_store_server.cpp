#include "store/tcp_store_server.hpp"

#include <fmt/format.h>

#include <cstring>
#include <stdexcept>
#include <utility>

#include "link/secret.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "store/tcp_store_session.hpp"

namespace manyworlds::inline v0::detail {

namespace {

// The pause while descriptors or memory are short.
constexpr duration accept_pause = std::chrono::milliseconds(50);

std::vector<listener> listening(reactor& home,
                                std::span<const socket_address> addresses) {
  std::vector<listener> all;
  for (socket_address address : addresses) {
    if (address.port() == 0 && !all.empty())
      address = address.with_port(all.front().address().port());
    all.emplace_back(home, address);
  }
  return all;
}

}  // namespace

tcp_store_server::tcp_store_server(reactor& home, const socket_address& address,
                                   tcp_store_server_options options)
    : tcp_store_server(home, std::span(&address, 1), std::move(options)) {}

tcp_store_server::tcp_store_server(reactor& home,
                                   std::span<const socket_address> addresses,
                                   tcp_store_server_options options)
    : tcp_store_server(home, listening(home, addresses), std::move(options)) {}

tcp_store_server::tcp_store_server(reactor& home, std::vector<listener> listeners,
                                   tcp_store_server_options options)
    : home_(home), options_(std::move(options)), listeners_(std::move(listeners)) {
  MW_ASSERT(!listeners_.empty(), "a server listens somewhere");
  address_ = listeners_.front().address();
  for (const listener& each : listeners_) {
    const std::string wrong =
        listening_error(each.address(), !options_.secret.empty(), options_.insecure);
    if (!wrong.empty()) throw std::invalid_argument("store: " + wrong);
  }
  if (!options_.secret.empty() && !can_prove()) {
    throw std::invalid_argument(
        "store: a secret is set, but this build has no libcrypto to use it");
  }
}

task<void> tcp_store_server::serve() {
  // Closes the listeners also when the task is cancelled.
  struct closing {
    explicit closing(std::vector<listener>& all) noexcept : all(all) {}
    closing(const closing&) = delete;
    closing& operator=(const closing&) = delete;
    ~closing() {
      for (listener& each : all) each.close();
    }
    std::vector<listener>& all;
  } const at_end(listeners_);
  co_await scope::run([this](scope& sessions) -> task<void> {
    for (listener& each : listeners_) sessions.spawn(accept(each, sessions));
    co_await stopping_;
    sessions.cancel();
  });
}

task<void> tcp_store_server::accept(listener& at, scope& sessions) {
  bool is_short = false;
  for (;;) {
    const io_result accepted = co_await at.accept();
    if (accepted.ok()) {
      is_short = false;
      sessions.spawn(serve_one(socket(home_.sockets(), accepted.handle())));
      continue;
    }
    if (!std::exchange(is_short, true)) {
      report(
          fmt::format("store {} cannot accept connections ({}); they wait until it can",
                      at.address().text(), std::strerror(accepted.error())));
    }
    co_await sleep_for(accept_pause);
  }
}

task<void> tcp_store_server::serve_one(socket accepted) {
  stream client(home_, std::move(accepted));
  if (connections_ >= options_.connections) {
    refuse(client, fmt::format("more than {} connections", options_.connections));
    co_return;
  }
  // Counts the connection until every way out, also when the task is cancelled.
  struct counted {
    explicit counted(std::atomic<std::size_t>& n) noexcept : n(n) { ++n; }
    counted(const counted&) = delete;
    counted& operator=(const counted&) = delete;
    ~counted() { --n; }
    std::atomic<std::size_t>& n;
  } const count(connections_);
  tcp_store_session session(*this, client);
  co_await session.run();
  if (!session.error().empty()) refuse(client, session.error());
}

void tcp_store_server::refuse(const stream& client, std::string_view reason) {
  ++refused_;
  report(fmt::format("store {} ended the connection of {}: {}", address_.text(),
                     client.peer_address().text(), reason));
}

void tcp_store_server::report(std::string_view line) const {
  if (options_.report) options_.report(line);
}

}  // namespace manyworlds::inline v0::detail
