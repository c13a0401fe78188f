// Orders about messages, as member.cpp lists them. Each is awaited by who owns what it is
// given; a failure of its world is thrown.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "any_size.hpp"
#include "numbered.hpp"

namespace manyworlds::process_tests {

using words = std::vector<std::string>;

/// One write for a line: lines of several threads must not mix.
inline void tell(const std::string& line) {
  const std::string whole = line + "\n";
  if (::write(STDOUT_FILENO, whole.data(), whole.size()) < 0) std::_Exit(3);
}

inline task<void> stream(world& w, const words& order, std::uint64_t& n,
                         shared_pool* pool) {
  const to peer(std::stoi(order[2]));
  numbered message(std::stoul(order[3]), pool);
  for (const auto count = std::stoul(order[4]); n < count; ++n) {
    message.number(n);
    co_await w.send(message.data, peer, {}, user_word(n));
  }
  tell("streamed " + order[1] + " " + std::to_string(n));
}

inline task<void> drain(world& w, const words& order, std::uint64_t& n) {
  const from peer(std::stoi(order[2]));
  numbered message(std::stoul(order[3]));
  for (const auto count = std::stoul(order[4]); n < count; ++n) {
    const message_info info = co_await w.recv(message.data, peer);
    if (info.user.value() != n || !message.is(n)) {
      tell("wrong " + order[1] + " " + std::to_string(n));
      co_return;
    }
  }
  tell("drained " + order[1] + " " + std::to_string(n));
}

inline task<void> echo(world& w, const words& order, std::uint64_t& n) {
  const int peer = std::stoi(order[2]);
  // Bytes, which go with every element type.
  std::vector<std::byte> message(std::stoul(order[3]));
  for (;; ++n) {
    const message_info info = co_await w.recv(message, from(peer));
    co_await w.send(message, to(peer), {}, info.user);
  }
}

inline task<void> answer(world& w, const words& order) {
  const int peer = std::stoi(order[2]);
  std::vector<std::uint8_t> buffer(std::size_t{1} << 20);
  for (;;) {
    const std::span<std::uint8_t> message = co_await take_any(w, peer, buffer);
    co_await w.send(message, to(peer));
  }
}

inline task<void> send(world& w, const words& order) {
  std::array<char, 64> data{};
  std::copy_n(order[4].begin(), std::min<std::size_t>(order[4].size(), 63), data.begin());
  co_await w.send(data, to(std::stoi(order[2])), lane(std::stoul(order[3])));
  tell("sent " + order[1] + " " + order[3]);
}

inline task<void> recv(world& w, const words& order) {
  std::array<char, 64> data{};
  co_await w.recv(data, from(std::stoi(order[2])), lane(std::stoul(order[3])));
  tell("got " + order[1] + " " + order[3] + " " + data.data());
}

}  // namespace manyworlds::process_tests
