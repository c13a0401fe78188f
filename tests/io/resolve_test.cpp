#include "manyworlds/io/resolve.hpp"

#include <doctest/doctest.h>

#include "io/reactor_fixture.hpp"

using namespace manyworlds;
using namespace manyworlds::testing;

TEST_SUITE_BEGIN("resolve");

TEST_CASE("a numeric address needs no lookup") {
  reactor_fixture f(engine_kind::epoll);
  running<resolution> r(f, resolve("[::1]:80"));
  f.get().turn();
  REQUIRE(r.ended());
  CHECK(r.result().addresses().at(0).text() == "[::1]:80");
}

TEST_CASE("a name gives its addresses with the port") {
  FOR_EACH_ENGINE(kind) {
    reactor_fixture f(kind);
    const resolution r = f.run(resolve("localhost:29500"));
    INFO(r.failure());
    REQUIRE(r.ok());
    CHECK(r.addresses().front().is_loopback());
    CHECK(r.addresses().front().port() == 29500);
  }
}

TEST_CASE("what is neither a name nor an address is refused with what was asked for") {
  reactor_fixture f(engine_kind::epoll);
  for (const char* text : {"", "nohost", ":80", "host:", "host:99999", "fe80::1:80"}) {
    const resolution r = f.run(resolve(text));
    CHECK(!r.ok());
    CHECK(r.failure().find("'" + std::string(text) + "'") != std::string::npos);
  }
}

TEST_CASE("a name without an address fails naming it") {
  reactor_fixture f(engine_kind::epoll);
  const resolution r = f.run(resolve("no-such-host.invalid:1"));
  CHECK(!r.ok());
  CHECK(r.failure().find("no-such-host.invalid") != std::string::npos);
}

TEST_CASE("a cancelled lookup is given up at once or delivered, and outlives nothing") {
  for (int n = 0; n < 50; ++n) {
    reactor_fixture f(engine_kind::epoll);
    running<resolution> r(f, resolve("localhost:1"));
    f.get().turn();
    r.cancel();
    f.run_until([&] { return r.ended(); });
    if (!r.cancelled()) CHECK(r.result().ok());
  }
}

TEST_SUITE_END();
