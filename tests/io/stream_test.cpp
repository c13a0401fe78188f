#include <doctest/doctest.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <vector>

#include "manyworlds/io/stream.hpp"
#include "io/reactor_fixture.hpp"

using namespace manyworlds;
using namespace manyworlds::testing;

TEST_SUITE_BEGIN("stream");

namespace {

std::vector<std::byte> pattern(std::size_t size) {
  std::vector<std::byte> bytes(size);
  std::uint32_t x = 1;
  for (auto& b : bytes) b = static_cast<std::byte>((x = x * 1664525u + 1013904223u) >> 24);
  return bytes;
}

task<io_result> receive_once(stream& s, std::span<std::byte> into) {
  co_return co_await s.receive_some(into);
}

task<io_result> send_once(stream& s, std::span<const std::byte> from) {
  co_return co_await s.send_some(from);
}

int option_of(const socket_address& at, int fd, int level, int name) {
  (void)at;
  int value = 0;
  socklen_t length = sizeof value;
  REQUIRE(::getsockopt(fd, level, name, &value, &length) == 0);
  return value;
}

/// Fills the stream's buffers until a send would block; how many bytes that took.
std::size_t fill(reactor_fixture& f, stream& s, std::span<const std::byte> bytes) {
  std::size_t sent = 0;
  for (int quiet = 0; quiet < 3;) {
    running<io_result> sending(f, send_once(s, bytes));
    const time_limit patience(50ms);
    while (!sending.ended() && !patience.passed()) f.get().turn();
    if (sending.ended()) {
      REQUIRE(sending.result().ok());
      sent += sending.result().count();
      quiet = 0;
      continue;
    }
    sending.cancel();
    f.run_until([&] { return sending.ended(); });
    if (!sending.cancelled()) sent += sending.result().count();
    ++quiet;
  }
  return sent;
}

}  // namespace

TEST_CASE("what is sent is received") {
  FOR_EACH_ENGINE(kind) {
    reactor_fixture f(kind);
    stream_pair p(f);
    CHECK(f.run(p.left.send_all(bytes_of("hello"))).count() == 5);
    std::array<std::byte, 5> got{};
    CHECK(f.run(p.right.receive_exactly(got)).count() == 5);
    CHECK(std::memcmp(got.data(), "hello", 5) == 0);
  }
}
