#include "manyworlds/format.hpp"

#include <doctest/doctest.h>

using namespace manyworlds;

TEST_SUITE_BEGIN("format");

TEST_CASE("the library's words are formatted by their names") {
  CHECK(fmt::format("{}", cause::peer_died) == "peer_died");
  CHECK(fmt::format("{}", operation_kind::receive) == "recv");
  CHECK(fmt::format("{}", world_state::closing) == "closing");
  CHECK(fmt::format("{}", dtype::bfloat16) == name_of(dtype::bfloat16));
  CHECK(fmt::format("{}", log_level::info) == "info");
}

TEST_CASE("ranks and lanes say what they are") {
  CHECK(fmt::format("{} {} {} {}", from{3}, from{any}, to{0}, lane(7)) ==
        "rank 3 any rank 0 lane 7");
}

TEST_CASE("failures, addresses, incarnations and names are formatted as they print") {
  const failure f(cause::peer_died, {});
  CHECK(fmt::format("{}", f) == f.text());
  CHECK(fmt::format("{}", socket_address::loopback(80)) == "127.0.0.1:80");
  CHECK(fmt::format("{}", incarnation()) == incarnation().text());
  CHECK(fmt::format("{}", process_address()) == process_address().text());
  CHECK(fmt::format("{}", world_name("left")) == "left");
}

TEST_CASE("width and alignment apply") {
  CHECK(fmt::format("[{:>8}] [{:<6}]", world_name("left"), world_state::up) ==
        "[    left] [up    ]");
}

TEST_SUITE_END();
