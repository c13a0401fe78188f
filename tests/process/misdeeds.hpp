// What a hostile member does to the memory that it shares with others, and to its own.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "link/segment_layout.hpp"
#include "manyworlds/mw.hpp"
#include "traffic_orders.hpp"

namespace manyworlds::process_tests {

/// The segments that this process has mapped, as its own map of memory tells.
inline std::vector<std::byte*> mapped_segments() {
  std::vector<std::byte*> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:manyworlds-link") == std::string::npos) continue;
    const auto begin = std::stoull(line, nullptr, 16);
    const auto end = std::stoull(line.substr(line.find('-') + 1), nullptr, 16);
    if (end - begin >= shm::segment_bytes)
      found.push_back(reinterpret_cast<std::byte*>(begin));
  }
  return found;
}

/// Parts of a segment. The rings and chunks are those of which something is used.
struct region {
  std::size_t begin;
  std::size_t end;
};
inline region region_named(const std::string& name) {
  namespace at = shm::offset;
  if (name == "header") return {0, at::receiver(0)};
  if (name == "wake_ups") return {at::receiver(0), at::beat(0)};
  if (name == "beats") return {at::beat(0), at::liveness(0)};
  if (name == "slabs") return {at::slabs_begin, at::offers_begin};
  if (name == "offers") return {at::offers_begin, at::offers_begin + 256};
  if (name == "rings") return {at::rings_begin, at::ring(2, 0)};
  if (name == "chunks") return {at::chunks_begin, at::chunk(0, 8)};
  return {0, shm::segment_bytes};
}

inline std::atomic<std::uint64_t>& word_at(std::byte* segment, std::size_t offset) {
  return *reinterpret_cast<std::atomic<std::uint64_t>*>(segment + offset);
}

/// Until it is killed: random words anywhere in a part of every segment.
inline void scribble(const std::string& where, unsigned seed) {
  std::thread([segments = mapped_segments(), part = region_named(where), seed] {
    std::minstd_rand random(seed);
    std::uniform_int_distribution<std::size_t> place(part.begin / 8, part.end / 8 - 1);
    std::uniform_int_distribution<std::uint64_t> word;
    for (;;) {
      for (std::byte* segment : segments)
        word_at(segment, place(random) * 8) = word(random);
    }
  }).detach();
}

/// Until it is killed: every word in the cells of the first slots has now one bit turned
/// over, now not, while the cells' sequences stay right.
inline void flip() {
  const auto turn_over = [](std::byte* segment, std::uint64_t bits) {
    for (std::size_t ring = 0; ring < 4; ++ring) {
      std::byte* const cells =
          segment + shm::offset::ring(ring / 2, static_cast<int>(ring % 2));
      for (std::size_t cell = 0; cell < shm::cell_ring::capacity; ++cell) {
        // Behind the sequence and the head come the words of the content.
        for (std::size_t at = 8; at < shm::line_size; at += 8)
          word_at(cells, cell * shm::line_size + at) ^= bits;
      }
    }
  };
  std::thread([segments = mapped_segments(), turn_over] {
    for (unsigned round = 0;; ++round) {
      // Each twice: over, and back.
      for (std::byte* segment : segments)
        turn_over(segment, std::uint64_t{1} << (round / 2 % 64));
    }
  }).detach();
}

/// No longer reads, and shows that it lives and goes on. On the reactor.
[[noreturn]] inline void turn_deaf() {
  std::thread([segments = mapped_segments()] {
    for (std::uint64_t progress = 1;; ++progress) {
      for (std::byte* segment : segments) {
        for (const int side : {0, 1}) {
          const auto at = shm::offset::beat(side);
          reinterpret_cast<shm::beat_line*>(segment + at)->progress = progress << 32;
        }
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }).detach();
  for (;;) ::pause();
}

/// Tells "at it" and turns deaf when the first byte of a message has arrived, which is
/// not 0, and the rest has not.
inline task<void> turn_deaf_within(world& w, const std::vector<std::string>& order) {
  std::vector<char> into(std::stoul(order[3]));
  auto receive = [&]() -> task<void> {
    (void)co_await outcome(w.recv(into, from(std::stoi(order[2]))));
  };
  auto body = [&](scope& s) -> task<void> {
    s.spawn(receive());
    while (into.front() == 0) co_await yield();
    tell("at it");
    turn_deaf();
  };
  co_await scope::run(body);
}

/// Offers memory of which the end is gone before a peer can have read it. Of each half
/// something is there, whichever side reads it.
inline task<void> offer_unmapped(world& w, std::vector<std::string> order) {
  const std::size_t bytes = std::stoul(order[3]);
  void* at =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  std::memset(at, 1, bytes);
  const std::size_t gone = bytes / 8;
  ::munmap(static_cast<char*>(at) + bytes - gone, gone);
  co_await w.send(std::span(static_cast<const char*>(at), bytes),
                  to(std::stoi(order[2])));
}

}  // namespace manyworlds::process_tests
