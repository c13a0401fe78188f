// P2p traffic: what the two members of `p2p` do at the same time, and how either verifies
// what it got.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "member.hpp"
#include "payload_memory.hpp"
#include "timing.hpp"

namespace mwbench {

/// Messages of a stream under way at a time, as in every test of bandwidth: a large one
/// ends only when the receiver has it.
constexpr int in_flight = 4;
/// Of a count of small ones.
constexpr int many_in_flight = 64;

/// Bytes that depend on where they are and on the message.
[[nodiscard]] inline char pattern(std::size_t at, unsigned message) noexcept {
  return static_cast<char>(at * 7 + (at >> 8) + message);
}
inline void fill(const pieces& memory, unsigned message) noexcept {
  std::size_t at = 0;
  for (const std::span<char> piece : memory) {
    for (char& byte : piece) byte = pattern(at++, message);
  }
}
[[nodiscard]] inline std::size_t wrong_bytes(const pieces& memory,
                                             unsigned message) noexcept {
  std::size_t at = 0;
  std::size_t wrong = 0;
  for (const std::span<char> piece : memory) {
    for (const char byte : piece) wrong += byte != pattern(at++, message) ? 1 : 0;
  }
  return wrong;
}

/// How two members verify: not at all if it is off.
struct verification {
  bool is_on = false;
  unsigned message = 0;
  std::size_t wrong = 0;
};

/// Buffers are of bytes, or of the views that cut them into pieces. What is verified is
/// filled and compared outside of the measured time.
template <class Buffer>
mw::task<void> ping(mw::world& w, Buffer out, const pieces& out_at, Buffer in,
                    const pieces& in_at, int count, samples& into, verification& v) {
  for (int i = 0; i < count; ++i) {
    if (v.is_on) {
      fill(out_at, ++v.message);
      fill(in_at, ~v.message);
    }
    const auto begin = now_ns();
    co_await w.send(out, mw::to{1});
    co_await w.recv(in, mw::from{1});
    into.add(us_since(begin) / 2);
    if (v.is_on) v.wrong += wrong_bytes(in_at, v.message);
  }
}

template <class Buffer>
mw::task<void> echo(mw::world& w, Buffer buffer, int count) {
  for (int i = 0; i < count; ++i) {
    co_await w.recv(buffer, mw::from{0});
    co_await w.send(buffer, mw::to{0});
  }
}

template <class Buffer>
mw::task<void> send_some(mw::world& w, Buffer buffer, int count) {
  for (int i = 0; i < count; ++i) co_await w.send(buffer, mw::to{1});
}

template <class Buffer>
mw::task<void> receive_some(mw::world& w, Buffer buffer, int count) {
  for (int i = 0; i < count; ++i) co_await w.recv(buffer, mw::from{0});
}

/// Seconds until the other side has all of them.
template <class Buffer>
mw::task<double> stream(mw::world& w, Buffer buffer, int count, int at_a_time) {
  char taken = 0;
  const auto begin = now_ns();
  std::vector<mw::task<void>> sending;
  for (int i = 0; i < at_a_time; ++i) {
    sending.push_back(send_some(w, buffer, count / at_a_time));
  }
  co_await mw::when_all(std::move(sending));
  co_await w.recv(std::span(&taken, 1), mw::from{1});
  co_return us_since(begin) / 1e6;
}

/// Each receive under way has a buffer of its own.
template <class Buffers>
mw::task<void> drain(mw::world& w, const Buffers& buffers, int count) {
  char taken = 0;
  std::vector<mw::task<void>> receiving;
  for (const auto& buffer : buffers) {
    receiving.push_back(
        receive_some(w, buffer, count / static_cast<int>(buffers.size())));
  }
  co_await mw::when_all(std::move(receiving));
  co_await w.send(std::span(&taken, 1), mw::to{0});
}

}  // namespace mwbench
