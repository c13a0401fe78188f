// The library as it is built without c-ares (tests/io/meson.build).
#include <doctest/doctest.h>

#include "io/name_server.hpp"
#include "io/reactor_fixture.hpp"
#include "io/resolve.hpp"

using namespace manyworlds;
using namespace manyworlds::testing;

TEST_CASE(
    "without c-ares names come from the hosts file, and for others the error says what "
    "to "
    "install") {
  const text_file hosts("10.0.0.7 node7\n");
  const text_file settings("nameserver 127.0.0.1:1\n");
  resolve_options options;
  options.hosts_file = hosts.path();
  options.settings_file = settings.path();
  reactor_fixture f(engine_kind::epoll);
  const resolution known = f.run(resolve("node7:80", options));
  REQUIRE(known.ok());
  CHECK(known.addresses().at(0).text() == "10.0.0.7:80");
  CHECK(f.run(resolve("localhost:80", options)).ok());
  const std::string why = f.run(resolve("node8:80", options)).failure();
  for (const char* part : {"cannot resolve host 'node8'", "no c-ares", "libc-ares-dev",
                           "-Dresolver=enabled"}) {
    INFO(why);
    CHECK(why.find(part) != std::string::npos);
  }
}
