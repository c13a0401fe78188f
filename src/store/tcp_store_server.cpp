#include "store/tcp_store_server.hpp"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "manyworlds/coro/sleep.hpp"
#include "store/tcp_store_session.hpp"

namespace manyworlds::inline v0::detail {

namespace {

// The pause while descriptors or memory are short.
constexpr duration accept_pause = std::chrono::milliseconds(50);

}  // namespace

tcp_store_server::tcp_store_server(reactor& home, const socket_address& address,
                                   tcp_store_server_options options)
    : home_(home),
      options_(std::move(options)),
      listener_(home, address),
      address_(listener_.address()) {}

task<void> tcp_store_server::serve() {
  // Closes the listener also when the task is cancelled.
  struct closing {
    explicit closing(listener& l) noexcept : l(l) {}
    closing(const closing&) = delete;
    closing& operator=(const closing&) = delete;
    ~closing() { l.close(); }
    listener& l;
  } const at_end(listener_);
  co_await scope::run([this](scope& sessions) -> task<void> {
    sessions.spawn(accept(sessions));
    co_await stopping_;
    sessions.cancel();
  });
}

task<void> tcp_store_server::accept(scope& sessions) {
  bool is_short = false;
  for (;;) {
    const io_result accepted = co_await listener_.accept();
    if (accepted.ok()) {
      is_short = false;
      sessions.spawn(serve_one(socket(home_.sockets(), accepted.handle())));
      continue;
    }
    if (!std::exchange(is_short, true)) {
      report(
          fmt::format("store {} cannot accept connections ({}); they wait until it can",
                      address_.text(), std::strerror(accepted.error())));
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
    explicit counted(std::size_t& n) noexcept : n(n) { ++n; }
    counted(const counted&) = delete;
    counted& operator=(const counted&) = delete;
    ~counted() { --n; }
    std::size_t& n;
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
