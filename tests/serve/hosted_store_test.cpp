// Hosted store: what its runtime's log is told.
#include "manyworlds/serve/hosted_store.hpp"

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

TEST_SUITE_END();

}  // namespace manyworlds::world_tests
