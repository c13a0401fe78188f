// How many connections a tcp_store makes.
#include <doctest/doctest.h>

#include <string>

#include "manyworlds/coro/scope.hpp"
#include "store/store_fixture.hpp"

using namespace manyworlds_tests;

TEST_SUITE_BEGIN("tcp_store connections");

TEST_CASE("many gets of keys that are set share the connections, beside any waits") {
  service_thread service(engine_kind::epoll);
  tcp_store_server_options few;
  few.connections = 5;
  hosted_server server(service.home(), socket_address::loopback(0), few);
  tcp_store_options options;
  options.connections = 2;
  tcp_store st(service.home(), server.address().text(), options);
  const auto getting = [&]() -> task<void> {
    CHECK(co_await st.get("set", 10s) == "value");
  };
  const auto waiting = [&](const char* key) -> task<void> {
    CHECK(co_await st.get(key, 10s) == "late");
  };
  const auto all = [&]() -> task<void> {
    co_await st.set("set", "value");
    co_await scope::run([&](scope& s) -> task<void> {
      for (const char* key : {"a", "b", "c"}) s.spawn(waiting, key);
      co_await scope::run([&](scope& gets) -> task<void> {
        for (int n = 0; n < 100; ++n) gets.spawn(getting);
        co_return;
      });
      for (const char* key : {"a", "b", "c"}) co_await st.set(key, "late");
    });
  };
  sync_wait(within(all(), patience));
  const auto refused = [&]() -> task<std::size_t> { co_return server.get().refused(); };
  CHECK(run_there(service.home(), refused()) == 0);
}

TEST_SUITE_END();
