// S22: client and server prove a secret to each other before anything else is said.
#include "store/store_greeting.hpp"

#include <doctest/doctest.h>

#include <stdexcept>
#include <string>

#include "store/served.hpp"
#include "store/store_relay.hpp"

using namespace manyworlds_tests;
using namespace std::string_literals;

namespace {

tcp_store_server_options with_secret(const char* secret) {
  tcp_store_server_options options;
  options.secret = secret;
  return options;
}

tcp_store_options knowing(const char* secret) {
  tcp_store_options options;
  options.secret = secret;
  return options;
}

/// A client's first message, with a nonce of one repeated byte.
std::string first_message(char nonce = 'n') {
  return "MWSTORE\1" + std::string(32, nonce);
}

template <class T>
T now(task<T> t) {
  return sync_wait(within(std::move(t), patience));
}

constexpr std::size_t challenge_bytes = 1 + 32 + 32;

}  // namespace

TEST_SUITE_BEGIN("store_greeting");

TEST_CASE(
    "S22: a client with the secret is served, one with another or none is refused") {
  for_each_engine([](engine_kind kind) {
    served server(kind, with_secret("right"));
    tcp_store good(server.home(), server.address().text(), knowing("right"));
    now(good.set("k", "v"));
    CHECK(now(good.get("k", 5s)) == "v");

    tcp_store wrong(server.home(), server.address().text(), knowing("wrong"));
    const store_failure refused = now(failure_of(wrong.get("k", 5s)));
    CHECK(refused.kind == store_error_kind::refused);
    CHECK(refused.reason == "client and store have different secrets");
    CHECK(wrong.trouble() == refused.reason);

    tcp_store silent(server.home(), server.address().text());
    const store_failure lost = now(failure_of(silent.get("k", 300ms)));
    CHECK(lost.kind == store_error_kind::unreachable);
    CHECK(lost.reason.find("it may demand a secret") != std::string::npos);
    CHECK(server.reports("it does not prove the secret"));
    // The first is undisturbed.
    CHECK(now(good.get("k", 5s)) == "v");
  });
}

TEST_CASE("S22: a client with a secret sends nothing to a store that has none") {
  served server(engine_kind::epoll);
  tcp_store careful(server.home(), server.address().text(), knowing("mine"));
  const store_failure f = now(failure_of(careful.set("k", "v", 5s)));
  CHECK(f.kind == store_error_kind::refused);
  CHECK(f.reason == "the store has no secret, and this client has one");
}

TEST_CASE("S22: a recorded proof does not serve again, nor does one sent back") {
  served server(engine_kind::epoll, with_secret("right"));
  raw_client first(server.address());
  first.send(first_message());
  const std::string challenge = first.receive(challenge_bytes);
  REQUIRE(challenge.size() == challenge_bytes);
  CHECK(challenge[0] == 0);
  // Reflected: the server's own proof is not a client's.
  first.send(challenge.substr(33));
  CHECK(first.receive(1) == "\2");
  CHECK(first.is_ended_by_server());

  // The proof of a real greeting, as one on the way would record it.
  std::string said = first_message();
  raw_client second(server.address());
  second.send(said);
  said += second.receive(challenge_bytes).substr(1);
  const secret_proof proof =
      prove("right", "manyworlds store: client", std::as_bytes(std::span(said)));
  const std::string recorded(reinterpret_cast<const char*>(proof.data()), proof.size());
  second.send(recorded);
  CHECK(second.receive(1) == "\0"s);
  second.greet();
  second.send(ping());
  CHECK(second.receive(4) == pong);
  // Replayed: the server's nonce is another each time.
  raw_client third(server.address());
  third.send(first_message());
  REQUIRE(third.receive(challenge_bytes).size() == challenge_bytes);
  third.send(recorded);
  CHECK(third.receive(1) == "\2");
  CHECK(third.is_ended_by_server());
}

TEST_CASE("S22: a greeting that stops, or is none, ends its own connection in time") {
  tcp_store_server_options options = with_secret("right");
  options.handshake_limit = 100ms;
  served server(engine_kind::epoll, options);
  tcp_store good(server.home(), server.address().text(), knowing("right"));
  now(good.set("k", "v"));
  for (const std::string& bytes :
       {"M"s, first_message().substr(0, 20), first_message(),
        "MWSTORE\2" + std::string(32, 'n'),
        "Mozilla/5.0 is no greeting, however long it may be"s}) {
    raw_client c(server.address());
    c.send(bytes);
    const std::string answer = c.receive(challenge_bytes + 1);
    CHECK(answer.size() <= challenge_bytes);
  }
  CHECK(server.reports("the greeting was broken off"));
  CHECK(now(good.get("k", 5s)) == "v");
}

TEST_CASE("S22: a relay lets a client without a greeting use a store with a secret") {
  served server(engine_kind::epoll, with_secret("right"));
  service_thread relays(engine_kind::epoll);
  store_relay relay(relays.home(), server.address().text(), "right");
  task<void> serving = relay.serve();
  task_root root(
      relays.home(), [](void*) noexcept {}, nullptr);
  root.start(serving.promise());
  {
    tcp_store plain(relays.home(), relay.address().text());
    now(plain.set("k", std::string(100'000, 'v')));
    CHECK(now(plain.get("k", 5s)).size() == 100'000);
    raw_client theirs(relay.address());
    theirs.greet();
    theirs.send(ping());
    CHECK(theirs.receive(4) == pong);
  }
  const auto stop = [](store_relay& r) -> task<void> {
    r.stop();
    co_return;
  };
  run_there(relays.home(), stop(relay));
  const auto nothing = []() -> task<void> { co_return; };
  run_there(relays.home(), nothing());
}

TEST_CASE("beyond loopback a store demands a secret, or that it is called insecure") {
  service_thread service(engine_kind::epoll);
  const socket_address everywhere = *socket_address::parse("0.0.0.0:0");
  const auto listening = [&](tcp_store_server_options options) {
    tcp_store_server server(service.home(), everywhere, options);
  };
  CHECK_THROWS_WITH_AS(listening({}), doctest::Contains("is open to the network"),
                       std::invalid_argument);
  CHECK_NOTHROW(listening(with_secret("s")));
  tcp_store_server_options insecure;
  insecure.insecure = true;
  CHECK_NOTHROW(listening(insecure));
  const auto relaying = [&] {
    store_relay_options options;
    options.listen = everywhere;
    store_relay relay(service.home(), "127.0.0.1:1", "s", options);
  };
  CHECK_THROWS_AS(relaying(), std::invalid_argument);
}

TEST_SUITE_END();
