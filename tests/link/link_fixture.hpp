// Raw peers for tests of links: sockets that say what no runtime would.
#pragma once

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "../world/world_fixture.hpp"
#include "link/hello.hpp"
#include "link/wire_address.hpp"
#include "manyworlds/store/run_on.hpp"

namespace manyworlds::link_tests {

using namespace world_tests;

/// A plain blocking connection to a runtime's endpoint.
class raw_peer {
 public:
  explicit raw_peer(const socket_address& where)
      : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    alignas(8) char storage[32];
    const unsigned length = where.to_native(storage);
    REQUIRE(::connect(fd_, reinterpret_cast<sockaddr*>(storage), length) == 0);
  }
  raw_peer(raw_peer&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~raw_peer() {
    if (fd_ >= 0) ::close(fd_);
  }

  void say(std::span<const std::byte> raw) const {
    (void)!::send(fd_, raw.data(), raw.size(), MSG_NOSIGNAL);
  }
  /// A length and what it counts, as hellos are framed.
  void say_frame(const bytes& body) const {
    wire_writer out;
    out.put(static_cast<std::uint32_t>(body.size())).put_raw(body);
    say(out.view());
  }
  [[nodiscard]] bytes hear_frame() const {
    std::uint32_t size = 0;
    if (!hear(std::as_writable_bytes(std::span(&size, 1))) || size > 4096) return {};
    bytes body(size);
    return hear(body) ? body : bytes{};
  }
  /// As links frame what they say: a length, a kind, and the body.
  void say_link_frame(std::uint8_t kind, const bytes& body) const {
    wire_writer out;
    out.put(static_cast<std::uint32_t>(body.size())).put(kind).put_raw(body);
    say(out.view());
  }
  /// The body of the next frame of that kind; others are read and dropped.
  [[nodiscard]] bytes hear_link_frame(std::uint8_t kind) const {
    for (;;) {
      std::uint32_t size = 0;
      std::uint8_t heard = 0;
      if (!hear(std::as_writable_bytes(std::span(&size, 1))) || size > 4096) return {};
      if (!hear(std::as_writable_bytes(std::span(&heard, 1)))) return {};
      bytes body(size);
      if (!hear(body)) return {};
      if (heard == kind) return body;
    }
  }
  /// Whether a frame of that kind comes within `limit`; others are read and dropped.
  [[nodiscard]] bool hears_link_frame(std::uint8_t kind, duration limit) const {
    const auto until = clock::now() + limit;
    while (clock::now() < until) {
      pollfd wanted{fd_, POLLIN, 0};
      std::uint32_t size = 0;
      std::uint8_t heard = 0;
      if (::poll(&wanted, 1, 10) != 1) continue;
      if (!hear(std::as_writable_bytes(std::span(&size, 1))) || size > 4096) return false;
      if (!hear(std::as_writable_bytes(std::span(&heard, 1)))) return false;
      bytes body(size);
      if (!hear(body)) return false;
      if (heard == kind) return true;
    }
    return false;
  }
  /// Whether the other side hangs up within `limit`; what it says before is read and
  /// dropped.
  [[nodiscard]] bool is_hung_up_on(duration limit) const {
    const auto until = clock::now() + limit;
    char dropped[1024];
    while (clock::now() < until) {
      pollfd wanted{fd_, POLLIN, 0};
      if (::poll(&wanted, 1, 50) == 1 && ::recv(fd_, dropped, sizeof dropped, 0) <= 0)
        return true;
    }
    return false;
  }

 private:
  [[nodiscard]] bool hear(std::span<std::byte> into) const {
    std::size_t got = 0;
    while (got < into.size()) {
      pollfd wanted{fd_, POLLIN, 0};
      if (::poll(&wanted, 1, 5000) != 1) return false;
      const ssize_t n = ::recv(fd_, into.data() + got, into.size() - got, 0);
      if (n <= 0) return false;
      got += static_cast<std::size_t>(n);
    }
    return true;
  }

  int fd_;
};

inline constexpr std::uint32_t hello_magic = 0x444c574d;

/// The first words of a process that does not exist.
inline bytes hello_of(const process_address& self, connection_purpose purpose,
                      std::uint16_t version = hello::current_version,
                      bool has_secret = false, const incarnation& expected = {}) {
  wire_writer out;
  out.put(hello_magic).put(version).put(purpose).put(std::uint8_t{has_secret});
  out.put_raw(bytes(16, std::byte{5}));
  write(self, out);
  out.put_raw(expected.raw()).put(std::uint64_t{0}).put(rank_t{0});
  return out.take();
}

inline process_address stranger(unsigned char id = 9) {
  process_address p;
  const bytes raw(incarnation::size, std::byte(id));
  p.id = incarnation(std::span<const std::byte>(raw).first<incarnation::size>());
  p.endpoint = socket_address::loopback(1);
  p.identity.pid = 1;
  p.identity.host = "nowhere";
  return p;
}

/// Says hello without a secret, all the way to the welcome; false if it was refused.
inline bool greet(const raw_peer& peer, const process_address& self,
                  connection_purpose purpose) {
  peer.say_frame(hello_of(self, purpose));
  const bytes answer = peer.hear_frame();
  if (answer.size() < 3 || static_cast<hello_status>(answer[0]) != hello_status::welcome)
    return false;
  // Without a secret the proof is zeros.
  peer.say_frame(bytes(sizeof(secret_proof)));
  const bytes verdict = peer.hear_frame();
  return verdict.size() == 1 &&
         static_cast<hello_status>(verdict[0]) == hello_status::welcome;
}

}  // namespace manyworlds::link_tests
