#include "manyworlds/io/socket_address.hpp"

#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>

using manyworlds::socket_address;

TEST_SUITE_BEGIN("socket_address");

TEST_CASE("an address reads back as it was written") {
  for (const char* text : {"127.0.0.1:29500", "0.0.0.0:0", "[::1]:29500", "[::]:65535",
                           "[fe80::1%2]:80", "[2001:db8::7]:1"}) {
    const auto a = socket_address::parse(text);
    REQUIRE_MESSAGE(a, text);
    CHECK(a->text() == text);
  }
}

TEST_CASE("names and malformed addresses are not addresses") {
  for (const char* text :
       {"", ":", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1",
        "127.0.0.1:1x", "127.0.0:1", "localhost:80", "::1:80", "[::1]", "[::1]80",
        "[::1%]:80", "[::1%x]:80", "[127.0.0.1]:80",
        "1111:2222:3333:4444:5555:6666:7777:8888:9999:0000:1111:2222:3333:1"}) {
    CHECK_MESSAGE(!socket_address::parse(text), text);
  }
}

TEST_CASE("a native address survives the way there and back") {
  for (const char* text : {"10.1.2.3:4", "[fe80::9%3]:5"}) {
    const auto a = socket_address::parse(text);
    sockaddr_storage storage{};
    const unsigned length = a->to_native(&storage);
    const auto* native = reinterpret_cast<sockaddr*>(&storage);
    CHECK(socket_address::from_native(native, length) == a);
    CHECK(!socket_address::from_native(native, length - 1));
  }
  sockaddr unknown{};
  unknown.sa_family = AF_UNIX;
  CHECK(!socket_address::from_native(&unknown, sizeof unknown));
  CHECK(socket_address().to_native(&unknown) == 0);
}

TEST_CASE("loopback and wildcard are recognised in both families") {
  const auto is = [](const char* text) { return *socket_address::parse(text); };
  CHECK(is("127.9.9.9:1").is_loopback());
  CHECK(is("[::1]:1").is_loopback());
  CHECK(is("[::ffff:127.0.0.1]:1").is_loopback());
  CHECK(!is("128.0.0.1:1").is_loopback());
  CHECK(!is("[::2]:1").is_loopback());
  CHECK(is("0.0.0.0:1").is_wildcard());
  CHECK(is("[::]:1").is_wildcard());
  CHECK(!is("127.0.0.1:1").is_wildcard());
  CHECK(!socket_address().is_wildcard());
  CHECK(!socket_address().is_valid());
  CHECK(socket_address::loopback(7).text() == "127.0.0.1:7");
}

TEST_SUITE_END();
