// A blocking socket that sends a store server whatever a test likes.
#pragma once

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <string>

#include "manyworlds/io/socket_address.hpp"
#include "store/tcp_store_protocol.hpp"

namespace manyworlds_tests {

using namespace manyworlds;

/// Waits at most ten seconds for anything.
class raw_client {
 public:
  explicit raw_client(const socket_address& server)
      : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    REQUIRE(fd_ >= 0);
    const timeval limit{10, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    alignas(8) unsigned char native[32];
    const unsigned size = server.to_native(native);
    REQUIRE(::connect(fd_, reinterpret_cast<const sockaddr*>(native), size) == 0);
  }
  raw_client(raw_client&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  raw_client& operator=(raw_client&&) = delete;
  ~raw_client() { close(); }

  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  void send(const std::string& bytes) {
    // A server that has closed already is what some tests are about.
    [[maybe_unused]] const auto sent =
        ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  void send(const tcp_store_message& m) {
    std::string bytes;
    encode(m, bytes);
    send(bytes);
  }
  void greet() {
    tcp_store_message validate(tcp_store_opcode::validate);
    validate.number = tcp_store_magic;
    send(validate);
  }
  /// `size` bytes, or what came before the end.
  std::string receive(std::size_t size) {
    std::string bytes(size, '\0');
    std::size_t have = 0;
    while (have < size) {
      const auto got = receive_some(bytes.data() + have, size - have);
      if (got <= 0) break;
      have += static_cast<std::size_t>(got);
    }
    bytes.resize(have);
    return bytes;
  }
  /// Whether the server ends the connection without another byte.
  [[nodiscard]] bool is_ended_by_server() {
    char byte = 0;
    const auto got = receive_some(&byte, 1);
    return got == 0 || (got < 0 && errno == ECONNRESET);
  }
  /// Whether nothing has come so far.
  [[nodiscard]] bool has_nothing() {
    char byte = 0;
    return ::recv(fd_, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
  }
  [[nodiscard]] int descriptor() const noexcept { return fd_; }

 private:
  // With a time limit, receiving is interrupted by signals even where they restart system
  // calls.
  ssize_t receive_some(char* into, std::size_t size) {
    for (;;) {
      const ssize_t got = ::recv(fd_, into, size, 0);
      if (got >= 0 || errno != EINTR) return got;
    }
  }

  int fd_;
};

/// A port without a listener. While this lives it is bound, so no other gets it.
class unused_port {
 public:
  unused_port() : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    alignas(8) unsigned char native[32];
    const unsigned size = socket_address::loopback(0).to_native(native);
    REQUIRE(::bind(fd_, reinterpret_cast<const sockaddr*>(native), size) == 0);
    socklen_t length = sizeof native;
    REQUIRE(::getsockname(fd_, reinterpret_cast<sockaddr*>(native), &length) == 0);
    address_ = *socket_address::from_native(reinterpret_cast<sockaddr*>(native), length);
  }
  ~unused_port() { ::close(fd_); }
  [[nodiscard]] const socket_address& address() const { return address_; }

 private:
  int fd_;
  socket_address address_;
};

inline tcp_store_message request(tcp_store_opcode opcode,
                                 std::vector<std::string> keys = {},
                                 std::vector<std::string> values = {},
                                 std::int64_t number = 0) {
  tcp_store_message m(opcode, std::move(keys));
  m.values = std::move(values);
  m.number = number;
  return m;
}

}  // namespace manyworlds_tests
