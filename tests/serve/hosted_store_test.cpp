// Hosted store: what its runtime's log is told.
#include "manyworlds/serve/hosted_store.hpp"

#include <fmt/format.h>

#include "../store/raw_client.hpp"
#include "../world/world_fixture.hpp"

namespace manyworlds::world_tests {

TEST_SUITE_BEGIN("serve");

TEST_CASE("a hosted store tells its runtime's log whom it refused and why") {
  node host;
  hosted_store store(host.rt, "127.0.0.1:0");
  const auto address = socket_address::parse(store.address());
  REQUIRE(address);
  manyworlds_tests::raw_client stranger(*address);
  stranger.send("GET / HTTP/1.1\r\n\r\n");
  // Told before the connection ends.
  CHECK(stranger.receive(1).empty());
  CHECK(host.log.has("not a TCPStore client"));
}

TEST_CASE(
    "a hosted store takes names as MASTER_ADDR has them, and refuses others by name") {
  node host;
  hosted_store store(host.rt, "localhost:0");
  const auto address = socket_address::parse(store.address());
  REQUIRE(address);
  CHECK(address->is_loopback());
  tcp_store client(host.rt, fmt::format("localhost:{}", address->port()));
  auto ask = [](tcp_store& st) -> task<void> { co_await st.set("key", "value"); };
  host.run(ask(client));
  for (const char* wrong : {"localhost", "127.0.0.1", "", ":29500"}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(hosted_store(host.rt, wrong), std::invalid_argument);
  }
}

TEST_SUITE_END();

}  // namespace manyworlds::world_tests
