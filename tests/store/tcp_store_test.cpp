#include "manyworlds/store/tcp_store.hpp"

#include <doctest/doctest.h>

#include <future>
#include <memory>
#include <stdexcept>
#include <string>

#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_all.hpp"
#include "store/raw_client.hpp"
#include "store/store_fixture.hpp"
#include "store/tcp_store_connection.hpp"

using namespace manyworlds_tests;

TEST_SUITE_BEGIN("tcp_store");

namespace {

/// Treats the connections of a listener by the given script, one after the other.
template <class Script>
task<void> act(reactor& home, listener& l, Script& script) {
  for (int connection = 0;; ++connection) {
    const io_result accepted = co_await l.accept();
    if (!accepted.ok()) co_return;
    stream s(home, manyworlds::socket(home.sockets(), accepted.handle()));
    co_await script(s, connection);
  }
}

task<void> say(stream& s, std::string bytes) {
  co_await s.send_all(std::as_bytes(std::span(bytes)));
}
task<std::string> hear(stream& s, std::size_t size) {
  std::string bytes(size, '\0');
  const io_result got =
      co_await s.receive_exactly(std::as_writable_bytes(std::span(bytes)));
  bytes.resize(got.ok() ? got.count() : 0);
  co_return bytes;
}
/// Reads a client's greeting and answers it.
task<void> welcome(stream& s) {
  const std::string greeting = co_await hear(s, 10);
  co_await say(s, greeting.substr(6));
}

/// Runs a body against a server of a given script.
template <class Script, class Body>
void against(Script script, tcp_store_options options, Body body) {
  service_thread service(engine_kind::epoll);
  const auto both = [&]() -> task<void> {
    listener l(service.home(), socket_address::loopback(0));
    tcp_store st(service.home(), l.address().text(), options);
    co_await scope::run([&](scope& s) -> task<void> {
      s.spawn(act(service.home(), l, script));
      co_await body(st);
      s.cancel();
    });
  };
  run_there(service.home(), both());
}

}  // namespace

TEST_CASE("an endpoint that is none is refused by name") {
  service_thread service(engine_kind::epoll);
  for (const char* bad :
       {"", "host", ":29500", "host:", "host:0", "host:65536", "host:1x", "[::1]"}) {
    const std::string expected = "store endpoint \"" + std::string(bad) + "\"";
    try {
      tcp_store st(service.home(), bad);
      FAIL("taken: ", bad);
    } catch (const std::invalid_argument& e) {
      CHECK(std::string(e.what()).find(expected) == 0);
    }
  }
}

TEST_CASE(
    "an unreachable store is an error within the limit that names address, key and "
    "reason") {
  service_thread service(engine_kind::epoll);
  const unused_port unused;
  tcp_store st(service.home(), unused.address().text());
  const auto asking = [&]() -> task<void> {
    const store_failure f = co_await failure_of(st.set("join/1", "x", 60ms));
    CHECK(f.kind == store_error_kind::unreachable);
    CHECK(f.elapsed >= 60ms);
    CHECK(f.elapsed < 5s);
    const std::string start =
        "store tcp://" + unused.address().text() +
        ": set of \"join/1\" failed, the store is unreachable after ";
    CHECK(f.text().find(start) == 0);
    CHECK(f.text().find("connecting: Connection refused") != std::string::npos);
    const store_failure g = co_await failure_of(st.get("join/2", 30ms));
    CHECK(g.kind == store_error_kind::unreachable);
    const store_failure h = co_await failure_of(st.add("n", 1, 30ms));
    CHECK(!h.may_have_happened);
  };
  sync_wait(asking());
}

TEST_CASE("a name that does not resolve is an unreachable store") {
  service_thread service(engine_kind::epoll);
  tcp_store st(service.home(), "no-such-host.invalid:29500");
  const auto asking = [&]() -> task<void> {
    const store_failure f = co_await failure_of(st.set("k", "v", 300ms));
    CHECK(f.kind == store_error_kind::unreachable);
    CHECK(f.text().find("no-such-host.invalid") != std::string::npos);
  };
  sync_wait(asking());
}

TEST_CASE("a name that resolves leads to the store") {
  service_thread service(engine_kind::epoll);
  hosted_server server(service.home(), socket_address::loopback(0));
  tcp_store st(service.home(), "localhost:" + std::to_string(server.address().port()));
  const auto asking = [&]() -> task<void> {
    co_await st.set("k", "v");
    CHECK(co_await st.get("k", 5s) == "v");
  };
  sync_wait(asking());
}

TEST_CASE("clients outlive their server: operations and waits go on with its successor") {
  for (const engine_kind kind : {engine_kind::io_uring, engine_kind::epoll}) {
    if (kind == engine_kind::io_uring && testing::io_uring_is_refused_here()) continue;
    service_thread service(kind);
    auto server =
        std::make_unique<hosted_server>(service.home(), socket_address::loopback(0));
    const socket_address address = server->address();
    tcp_store st(service.home(), address.text());
    for (int round = 0; round < 3; ++round) {
      INFO("round ", round);
      const std::string key = "after " + std::to_string(round);
      std::promise<std::string> got;
      std::thread waiter([&] { got.set_value(sync_wait(st.get(key, 15s))); });
      sync_wait(st.set("k", "v"));
      CHECK(sync_wait(st.add("n", 1)) == 1);
      server.reset();
      server = std::make_unique<hosted_server>(service.home(), address);
      CHECK(sync_wait(st.try_get("k")) == std::nullopt);
      CHECK(sync_wait(st.add("other", 1)) == 1);
      sync_wait(st.set(key, "there"));
      CHECK(got.get_future().get() == "there");
      waiter.join();
    }
  }
}

TEST_CASE("what answers but is no store is a protocol error at once") {
  const auto web_server = [](stream& s, int) -> task<void> {
    co_await hear(s, 10);
    co_await say(s, "HTTP/1.1 400 Bad Request\r\n\r\n");
  };
  against(web_server, {}, [](store& st) -> task<void> {
    const store_failure f = co_await failure_of(st.set("k", "v", 10s));
    CHECK(f.kind == store_error_kind::protocol);
    CHECK(f.elapsed < 5s);
    CHECK(f.text().find("the store broke its protocol") != std::string::npos);
    CHECK(st.trouble() == f.reason);
  });
}

TEST_CASE("a reply beyond the limits is a protocol error, and is not allocated") {
  const auto boastful = [](stream& s, int) -> task<void> {
    co_await welcome(s);
    co_await hear(s, 1);
    co_await say(s, std::string(8, '\x7f'));
    co_await hear(s, 1000);
  };
  against(boastful, {}, [](store& st) -> task<void> {
    const store_failure f = co_await failure_of(st.compare_set("k", "", "v", 10s));
    CHECK(f.kind == store_error_kind::protocol);
  });
}

TEST_CASE("a store that accepts and says nothing is unreachable within the limit") {
  const auto silent = [](stream& s, int) -> task<void> { co_await hear(s, 1000); };
  tcp_store_options options;
  options.connect_limit = 20ms;
  against(silent, options, [](store& st) -> task<void> {
    const store_failure f = co_await failure_of(st.get("k", 100ms));
    CHECK(f.kind == store_error_kind::unreachable);
    CHECK(f.elapsed < 5s);
    CHECK(f.text().find("no answer while connecting") != std::string::npos);
  });
}

TEST_CASE(
    "a store that stops answering during a wait is told from a key that is never set") {
  const auto falls_silent = [](stream& s, int) -> task<void> {
    co_await welcome(s);
    co_await hear(s, 1000);
  };
  tcp_store_options options;
  options.probe_interval = 20ms;
  options.answer_limit = 20ms;
  against(falls_silent, options, [](store& st) -> task<void> {
    const store_failure f = co_await failure_of(st.wait({"k"}, 200ms));
    CHECK(f.kind == store_error_kind::unreachable);
    CHECK(f.text().find("no answer") != std::string::npos);
  });
}

TEST_CASE("a wait that is answered while it is cancelled has succeeded") {
  const auto late_answer = [](stream& s, int) -> task<void> {
    co_await welcome(s);
    co_await hear(s, 1 + 8 + 8 + 2);
    const std::string cancel = co_await hear(s, 1);
    CHECK(cancel == "\x0c");
    co_await say(s, std::string("\0\1", 2));
    // The same connection serves the next wait, in step.
    co_await hear(s, 1 + 8 + 8 + 2);
    co_await say(s, std::string(1, '\0'));
    co_await hear(s, 1000);
  };
  tcp_store_options options;
  options.probe_interval = 20ms;
  against(late_answer, options, [](store& st) -> task<void> {
    co_await st.wait({"k"}, 10s);
    co_await st.wait({"l"}, 10s);
  });
}

TEST_CASE("a store that answers is in no trouble, however long a key is waited for") {
  service_thread service(engine_kind::epoll);
  hosted_server server(service.home(), socket_address::loopback(0));
  tcp_store st(service.home(), server.address().text());
  // Over the connection that the first operation leaves behind.
  sync_wait(within(st.set("set", "value"), patience));
  for (const bool gets : {true, false}) {
    CAPTURE(gets);
    const auto waiting = [&]() -> task<void> {
      const auto wait = [&]() -> task<void> {
        if (gets) co_await st.get("missing", 1s);
        if (!gets) co_await st.wait({"missing"}, 1s);
      };
      const store_failure f = co_await failure_of(wait());
      CHECK(f.kind == store_error_kind::timed_out);
    };
    auto ended =
        std::async(std::launch::async, [&] { sync_wait(within(waiting(), patience)); });
    const auto begun = std::chrono::steady_clock::now();
    bool is_well_later = false;
    while (ended.wait_for(1ms) != std::future_status::ready) {
      const bool is_later = std::chrono::steady_clock::now() - begun > 300ms;
      is_well_later |= is_later && st.trouble().empty();
    }
    ended.get();
    CHECK(is_well_later);
  }
}

TEST_CASE("a store is in trouble once an answer is late, not by a question given up") {
  const auto silent = [](stream& s, int) -> task<void> { co_await hear(s, 1000); };
  against(silent, {}, [](store& st) -> task<void> {
    const auto given_up_after = [&](duration limit) -> task<void> {
      try {
        co_await within(st.check({"k"}), limit);
        FAIL("it has not answered");
      } catch (const timed_out&) {}
    };
    const auto begun = std::chrono::steady_clock::now();
    co_await given_up_after(1ms);
    const bool was_late = std::chrono::steady_clock::now() - begun > 100ms;
    // Longer than an answer may take.
    co_await sleep_for(300ms);
    if (!was_late) CHECK(st.trouble() == "");
    co_await given_up_after(300ms);
    CHECK(st.trouble() == "no answer yet");
  });
}

TEST_CASE("a long wait asks now and then, and goes on waiting") {
  service_thread service(engine_kind::epoll);
  hosted_server server(service.home(), socket_address::loopback(0));
  tcp_store_options options;
  options.probe_interval = 2ms;
  tcp_store st(service.home(), server.address().text(), options);
  const auto waiting = [&]() -> task<void> {
    const auto getting = [&]() -> task<void> { CHECK(co_await st.get("k", 15s) == "v"); };
    const auto setting = [&]() -> task<void> {
      co_await sleep_for(50ms);
      co_await st.set("k", "v");
    };
    co_await when_all(getting(), setting());
  };
  sync_wait(waiting());
  CHECK(server.connections() <= 4);
}

TEST_CASE("an add that was sent and not answered is not repeated, a set is") {
  int requests = 0;
  const auto hangs_up = [&](stream& s, int) -> task<void> {
    co_await welcome(s);
    const std::string opcode = co_await hear(s, 1);
    if (!opcode.empty()) ++requests;
  };
  against(hangs_up, {}, [&](store& st) -> task<void> {
    const store_failure f = co_await failure_of(st.add("n", 1, 10s));
    CHECK(f.kind == store_error_kind::unreachable);
    CHECK(f.may_have_happened);
    CHECK(f.text().find("it may have taken effect") != std::string::npos);
    CHECK(requests == 1);
    const store_failure g = co_await failure_of(st.set("k", "v", 200ms));
    CHECK(!g.may_have_happened);
    CHECK(requests > 2);
  });
}

TEST_CASE("operations share few connections, and waits do not use them up") {
  service_thread service(engine_kind::epoll);
  hosted_server server(service.home(), socket_address::loopback(0));
  tcp_store_options options;
  options.connections = 2;
  tcp_store st(service.home(), server.address().text(), options);
  const auto crowd = [&]() -> task<void> {
    co_await scope::run([&](scope& s) -> task<void> {
      const auto waiting = [&]() -> task<void> { co_await st.wait({"go"}, 15s); };
      const auto setting = [&](int i) -> task<void> {
        co_await st.set("k" + std::to_string(i), "v");
        CHECK(server.get().connections() <= 20 + 2);
      };
      for (int i = 0; i < 20; ++i) s.spawn(waiting);
      for (int i = 0; i < 100; ++i) s.spawn(setting, i);
      while (!co_await st.check({"k99"})) co_await yield();
      co_await st.set("go", "1");
    });
  };
  run_there(service.home(), crowd());
  CHECK(comes_true([&] { return server.connections() <= 4; }));
}
