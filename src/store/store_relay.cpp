#include "store/store_relay.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "io/resolve.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_all.hpp"
#include "manyworlds/coro/within.hpp"
#include "store/store_greeting.hpp"

namespace manyworlds::inline v0::detail {

namespace {

// The pause while descriptors or memory are short.
constexpr duration relay_pause = std::chrono::milliseconds(50);
constexpr std::size_t relay_piece_bytes = 16 * 1024;

socket_address checked_relay(const socket_address& address, const secret_text& secret) {
  if (!address.is_loopback()) {
    throw std::invalid_argument(
        fmt::format("store relay: {} is open to the network, and its clients prove "
                    "nothing: listen on loopback",
                    address.text()));
  }
  if (secret.empty()) {
    throw std::invalid_argument(
        "store relay: it has no secret to prove; its clients can use the store itself");
  }
  return address;
}

}  // namespace

store_relay::store_relay(reactor& home, std::string endpoint, const secret_text& secret,
                         store_relay_options options)
    : home_(home),
      endpoint_(std::move(endpoint)),
      secret_(secret),
      options_(std::move(options)),
      listener_(home, checked_relay(options_.listen, secret)),
      address_(listener_.address()) {}

task<void> store_relay::serve() {
  co_await scope::run([this](scope& relayed) -> task<void> {
    relayed.spawn(accept(relayed));
    co_await stopping_;
    relayed.cancel();
  });
  listener_.close();
}

task<void> store_relay::accept(scope& relayed) {
  for (;;) {
    const io_result accepted = co_await listener_.accept();
    if (!accepted.ok()) {
      co_await sleep_for(relay_pause);
      continue;
    }
    socket client(home_.sockets(), accepted.handle());
    if (connections_ < options_.connections) relayed.spawn(relay(std::move(client)));
  }
}

task<void> store_relay::relay(socket accepted) {
  // Counts the connection until every way out, also when the task is cancelled.
  struct counted {
    explicit counted(std::size_t& n) noexcept : n(n) { ++n; }
    counted(const counted&) = delete;
    counted& operator=(const counted&) = delete;
    ~counted() { --n; }
    std::size_t& n;
  } const count(connections_);
  stream client(home_, std::move(accepted));
  stream far;
  std::string trouble;
  try {
    far = co_await within(reach(), options_.connect_limit);
  } catch (const timed_out&) {
    trouble = "no answer in time";
  } catch (const std::runtime_error& e) {
    trouble = e.what();
  }
  if (!trouble.empty()) {
    if (options_.report) {
      options_.report(fmt::format("store relay {}: the store {}: {}", address_.text(),
                                  endpoint_, trouble));
    }
    co_return;
  }
  co_await when_all(pass(client, far), pass(far, client));
}

/// Returns a connection to the far store that has proven the secret. Errors:
/// std::runtime_error.
task<stream> store_relay::reach() {
  const resolution found = co_await resolve(endpoint_);
  if (!found.ok()) throw std::runtime_error(found.failure());
  int failure = 0;
  for (const socket_address& address : found.addresses()) {
    stream far;
    const io_result connected = co_await stream::connect(home_, address, far);
    failure = connected.error();
    if (!connected.ok()) continue;
    const store_greeting_end end = co_await greet_store(far, secret_);
    if (end == store_greeting_end::proven) co_return far;
    throw std::runtime_error(std::string(text_of(end)));
  }
  throw std::runtime_error(std::strerror(failure));
}

/// Passes bytes on until the stream ends; its end is passed on too.
task<void> store_relay::pass(stream& from, stream& to) {
  std::vector<std::byte> piece(relay_piece_bytes);
  for (;;) {
    const io_result received = co_await from.receive_some(piece);
    if (!received.ok() || received.count() == 0) break;
    const io_result sent = co_await to.send_all(std::span(piece).first(received.count()));
    if (!sent.ok()) break;
  }
  to.shut_down_sending();
}

}  // namespace manyworlds::inline v0::detail
