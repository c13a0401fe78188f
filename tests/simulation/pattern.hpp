// Pattern: what a message contains, so that no byte of it can be another message's.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

#include "simulation/chronicle.hpp"

namespace manyworlds_tests {

inline std::uint64_t mixed(std::uint64_t z) noexcept {
  z += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

inline std::uint64_t tag_of(const message_key& k, std::uint64_t number) noexcept {
  std::uint64_t tag = mixed(k.epoch ^ k.id);
  for (const char c : k.world) tag = mixed(tag ^ static_cast<unsigned char>(c));
  tag = mixed(tag ^ static_cast<std::uint64_t>(k.source));
  tag = mixed(tag ^ static_cast<std::uint64_t>(k.target));
  return mixed(mixed(tag ^ k.lane) ^ number);
}

inline std::uint64_t pattern_word(std::uint64_t tag, std::size_t at) noexcept {
  return tag ^ at * 0x9e3779b97f4a7c15u;
}

inline void fill_pattern(std::span<std::byte> bytes, std::uint64_t tag) {
  std::size_t at = 0;
  for (; at + sizeof tag <= bytes.size(); at += sizeof tag) {
    const std::uint64_t word = pattern_word(tag, at);
    std::memcpy(bytes.data() + at, &word, sizeof word);
  }
  const std::uint64_t rest = pattern_word(tag, at);
  if (at < bytes.size()) std::memcpy(bytes.data() + at, &rest, bytes.size() - at);
}

inline bool has_pattern(std::span<const std::byte> bytes, std::uint64_t tag) {
  std::uint64_t difference = 0;
  std::size_t at = 0;
  for (; at + sizeof tag <= bytes.size(); at += sizeof tag) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    difference |= word ^ pattern_word(tag, at);
  }
  const std::uint64_t rest = pattern_word(tag, at);
  const std::size_t left = bytes.size() - at;
  return difference == 0 &&
         (left == 0 || std::memcmp(bytes.data() + at, &rest, left) == 0);
}

/// The word that travels beside a message: which one it is, and whether it is the last.
struct message_word {
  std::uint64_t epoch = 0;
  std::uint64_t number = 0;
  bool last = false;

  [[nodiscard]] mw::user_word packed() const {
    return mw::user_word(epoch << 32 | number << 1 | std::uint64_t{last});
  }
  [[nodiscard]] static message_word unpacked(mw::user_word w) {
    return {w.value() >> 32, w.value() >> 1 & 0x7fffffff, (w.value() & 1) != 0};
  }
};

}  // namespace manyworlds_tests
