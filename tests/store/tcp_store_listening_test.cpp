// Where a server listens (S15).
#include <doctest/doctest.h>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>
#include <system_error>

#include "store/served.hpp"

using namespace manyworlds_tests;

namespace {

template <class F>
std::string what_is_thrown(F f) {
  try {
    f();
  } catch (const std::exception& e) {
    return e.what();
  }
  return {};
}

void check_serves(const socket_address& at) {
  raw_client c(at);
  c.greet();
  c.send(ping());
  CHECK(c.receive(4) == pong);
}

}  // namespace

TEST_SUITE_BEGIN("tcp_store_server");

TEST_CASE("S15: a taken port is named with the process that has it") {
  service_thread service(engine_kind::epoll);
  const hosted_server first(service.home(), socket_address::loopback(0));
  const std::string why =
      what_is_thrown([&] { tcp_store_server(service.home(), first.address()); });
  CHECK(why.find("cannot listen on " + first.address().text()) == 0);
  CHECK(why.find("pid " + std::to_string(::getpid()) + " (") != std::string::npos);
  CHECK(why.find("in use") != std::string::npos);
}

TEST_CASE("S15: a server listens on several addresses, with one port for all") {
  service_thread service(engine_kind::epoll);
  const std::array<socket_address, 2> addresses{*socket_address::parse("127.0.0.1:0"),
                                                *socket_address::parse("127.0.0.2:0")};
  hosted_server server(service.home(), std::span<const socket_address>(addresses));
  check_serves(server.address());
  check_serves(addresses[1].with_port(server.address().port()));
  server.stop();
  CHECK(what_is_thrown([&] { tcp_store_server(service.home(), server.address()); }) ==
        "");
}

TEST_CASE("S15: a listening descriptor is handed from one program to another") {
  service_thread service(engine_kind::epoll);
  // The port is held, and its clients wait, from before the server is there.
  listener held(service.home(), socket_address::loopback(0));
  const socket_address address = held.address();
  raw_client early(address);
  early.greet();
  early.send(ping());
  const int fd = ::dup(held.descriptor());
  REQUIRE(fd >= 0);
  held.close();
  std::vector<listener> taken;
  taken.push_back(listener::from_descriptor(service.home(), fd));
  CHECK((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
  hosted_server server(service.home(), std::move(taken));
  CHECK(server.address() == address);
  CHECK(early.receive(4) == pong);
  check_serves(address);
}

TEST_CASE("S15: a descriptor that does not listen is refused by its number") {
  service_thread service(engine_kind::epoll);
  const auto taking = [&](int fd) {
    return what_is_thrown([&] { (void)listener::from_descriptor(service.home(), fd); });
  };
  const int closed = ::dup(0);
  ::close(closed);
  CHECK(taking(closed).find("descriptor " + std::to_string(closed) +
                            " is no TCP socket that listens") == 0);
  CHECK(taking(::open("/dev/null", O_RDONLY)).find("is no TCP socket") !=
        std::string::npos);
  CHECK(taking(::socket(AF_INET, SOCK_STREAM, 0)).find("is no TCP socket") !=
        std::string::npos);
  const int local = ::socket(AF_UNIX, SOCK_STREAM, 0);
  CHECK(taking(local).find("is no TCP socket") != std::string::npos);
}

TEST_SUITE_END();
