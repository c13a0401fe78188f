// Coroutines over one connection, for tests of what happens to it.
#pragma once

#include <doctest/doctest.h>

#include <array>
#include <optional>
#include <vector>

#include "io/stream.hpp"
#include "simulation/simulated_node.hpp"

namespace manyworlds_tests {

inline constexpr std::uint16_t port = 7000;

inline mw::task<> accept_one(mw::reactor& home, mw::listener& listening,
                             mw::stream& into) {
  const mw::io_result accepted = co_await listening.accept();
  if (accepted.ok())
    into = mw::stream(home, mw::socket(home.sockets(), accepted.handle()));
}

inline mw::task<> connect_to(mw::reactor& home, mw::socket_address to, mw::stream& into,
                             std::optional<int>& error) {
  const mw::io_result result = co_await mw::stream::connect(home, to, into);
  error = result.error();
}

inline mw::task<> receive_one(mw::stream& from, std::optional<mw::io_result>& result) {
  std::array<std::byte, 1> byte{};
  result = co_await from.receive_some(byte);
}

inline mw::task<> receive_all(mw::stream& from, std::size_t& count,
                              std::optional<int>& end) {
  std::array<std::byte, 4096> bytes{};
  for (;;) {
    const mw::io_result read = co_await from.receive_some(bytes);
    if (read.ok()) count += read.count();
    if (read.ok() && read.count() > 0) continue;
    end = read.error();
    co_return;
  }
}

inline mw::task<> send_bytes(mw::stream& to, std::size_t size,
                             std::optional<int>& error) {
  const std::vector<std::byte> bytes(size);
  const mw::io_result sent = co_await to.send_all(bytes);
  error = sent.error();
}

/// Two processes with one connection.
/// What its tasks write to is declared before it: they end in its destructor.
struct connected_pair {
  explicit connected_pair(std::uint64_t seed, mw::simulation_options options = {})
      : sim(seed, options),
        a(sim, "a"),
        b(sim, "b"),
        at_b(b.home(), b.process().address(port)) {
    b.spawn(accept_one(b.home(), at_b, far));
    std::optional<int> error;
    a.spawn(connect_to(a.home(), b.process().address(port), near, error));
    REQUIRE(
        sim.run_until([&] { return near.is_open() && far.is_open() && a.has_ended(); }));
  }
  ~connected_pair() {
    a.end();
    b.end();
  }

  mw::simulation sim;
  simulated_node a;
  simulated_node b;
  mw::listener at_b;
  mw::stream near;
  mw::stream far;
};

}  // namespace manyworlds_tests
