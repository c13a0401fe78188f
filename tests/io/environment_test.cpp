#include "io/system_environment.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <array>

using namespace manyworlds;

TEST_SUITE_BEGIN("environment");

TEST_CASE("random bytes differ, and every byte asked for is filled") {
  system_environment machine;
  std::array<std::byte, 4096> one{};
  std::array<std::byte, 4096> two{};
  machine.fill_random(one);
  machine.fill_random(two);
  CHECK(one != two);
  // 64 zero bytes in a row at the end would be one chance in 2^512.
  CHECK(!std::all_of(one.end() - 64, one.end(),
                     [](std::byte b) { return b == std::byte{}; }));
  machine.fill_random({});
}

TEST_CASE("a process knows its pid and host") {
  const process_identity me = system_environment().identity();
  CHECK(me.pid == ::getpid());
  CHECK(!me.host.empty());
}

TEST_CASE("an environment makes the machine's engines") {
  system_environment machine;
  CHECK(machine.make_engine(engine_kind::epoll).engine->name() == "epoll");
  CHECK(machine.starts_threads());
}

TEST_SUITE_END();
