// Messages with a payload that another backend brings: the host backend matches them by
// their description.
#include <array>

#include "cluster.hpp"
#include "host/device_payload.hpp"

using namespace manyworlds;
using namespace manyworlds::host_tests;

namespace {

std::vector<std::byte> description(std::uint64_t bytes, dtype type,
                                   std::size_t more = 24) {
  std::vector<std::byte> all(host::device_payload_prefix_size + more, std::byte{0x5A});
  host::encode({bytes, type}, std::span(all).first<host::device_payload_prefix_size>());
  return all;
}

struct far_send : send_op {
  explicit far_send(std::uint64_t bytes, dtype type = dtype::float32)
      : text(description(bytes, type)) {
    on_device = &payload;
    delivered = true;
  }
  std::vector<std::byte> text;
  device_payload payload;
};

struct far_receive : receive_op {
  explicit far_receive(std::size_t bytes, dtype type = dtype::float32) {
    payload.bytes = bytes;
    payload.type = type;
    on_device = &payload;
  }
  device_payload payload;
};

void start(cluster& c, far_send& s, std::uint64_t on = 0) {
  send(c, s, 0, 1, s.text, on);
}
void start(cluster& c, far_receive& r, std::uint64_t on = 0) {
  r.peer = 0;
  r.on = lane(on);
  c.at(1).start(r);
}

}  // namespace

TEST_SUITE("host device payloads") {
  TEST_CASE("a description reaches the receive, in the order of its lane") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(2, g);
      far_send first(4096), second(64);
      far_receive got(4096), then(64);
      start(c, first);
      start(c, second);
      arrival_op look;
      look.peer = 0;
      c.at(1).start(look);
      REQUIRE(c.until([&] { return look.ended(); }));
      CHECK(look.info.on_device);
      CHECK(look.info.bytes == 4096);
      CHECK(look.info.count == 1024);
      CHECK(look.info.type == dtype::float32);
      CHECK_FALSE(first.ended());
      start(c, got);
      start(c, then);
      REQUIRE(c.until([&] { return first.ended() && second.ended() && then.ended(); }));
      CHECK(first.done());
      CHECK(got.done());
      CHECK(got.payload.description == first.text);
      CHECK(then.payload.description == second.text);
    }
  }

  TEST_CASE("what does not fit stays at the head of its lane, and says why") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(2, g);
      far_send s(4096);
      start(c, s);
      std::vector<std::uint8_t> host_memory(4096);
      receive_op host;
      receive(c, host, 1, 0, host_memory);
      REQUIRE(c.until([&] { return host.ended(); }));
      CHECK(host.failed(cause::memory_mismatch));
      far_receive small(64), other_type(4096, dtype::int32);
      start(c, small);
      REQUIRE(c.until([&] { return small.ended(); }));
      CHECK(small.failed(cause::size_mismatch));
      start(c, other_type);
      REQUIRE(c.until([&] { return other_type.ended(); }));
      CHECK(other_type.failed(cause::type_mismatch));
      far_receive bytes(4096, dtype::uint8);
      start(c, bytes);
      REQUIRE(c.until([&] { return s.ended(); }));
      CHECK(bytes.done());
      CHECK(s.done());
    }
  }

  TEST_CASE("a message in host memory is none for a receive into device memory") {
    cluster c(2);
    std::vector<std::uint8_t> sent = pattern(64, 1), got(64);
    send_op s;
    send(c, s, 0, 1, sent);
    far_receive r(64);
    start(c, r);
    REQUIRE(c.until([&] { return r.ended(); }));
    CHECK(r.failed(cause::memory_mismatch));
    receive_op right;
    receive(c, right, 1, 0, got);
    REQUIRE(c.until([&] { return right.ended(); }));
    CHECK(got == sent);
  }

  TEST_CASE(
      "law 10: a send from device memory that no receive took is withdrawn, and the peer "
      "gets none") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(2, g);
      far_send gone(4096), kept(8);
      start(c, gone);
      c.settle();
      if (!c.at(0).withdraw(gone)) REQUIRE(c.until([&] { return gone.ended(); }));
      CHECK((gone.ends == 0 || gone.withdrawn()));
      start(c, kept);
      far_receive r(8);
      start(c, r);
      REQUIRE(c.until([&] { return r.ended(); }));
      CHECK(r.done());
      CHECK(r.payload.description == kept.text);
      CHECK(c[0].events.quiet());
    }
  }

  TEST_CASE("law 11: a description that cannot be one ends the connection") {
    for (const unsigned wrong : {0U, 1U, 2U}) {
      CAPTURE(wrong);
      cluster c(2);
      far_send s(4096);
      if (wrong == 0) s.text.resize(8);
      if (wrong == 1) s.text[8] = std::byte{99};
      if (wrong == 2) s.text[0] = std::byte{1};
      start(c, s);
      REQUIRE(c.until([&] { return !c[1].events.quiet(); }));
      CHECK(c[1].events.cause == cause::protocol_error);
    }
  }
}
