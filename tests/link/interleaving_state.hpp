// One state of the model checker's memory and threads, and how states are told apart.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace interleaving {

inline constexpr std::size_t most_words = 48;

/// For each word, the oldest of its values that may still be seen.
using view = std::array<std::uint8_t, most_words>;

/// A value that a word has, or had, and what the store that made it passes on.
struct message {
  std::uint64_t value = 0;
  view knows{};
};

/// A store that has not reached memory.
struct buffered {
  std::size_t word = 0;
  std::uint64_t value = 0;
};

struct thread_state {
  /// What its steps so far gave: with them it runs to the same place again.
  std::vector<std::uint64_t> results;
  std::vector<buffered> buffer;
  view now{}, acquired{}, released{};
};

struct state {
  std::vector<thread_state> threads;
  /// Of each word the history; with x86's memory only one value.
  std::vector<std::vector<message>> words;
  view fenced{};
};

/// Hash of a state. 128 bits: a collision, which would hide states, does not happen.
struct state_key {
  std::uint64_t high = 0x9e3779b97f4a7c15, low = 0xc2b2ae3d27d4eb4f;
  void add(std::uint64_t value) {
    high = (high ^ value) * 0xff51afd7ed558ccd;
    high ^= high >> 32;
    low = (low + value) * 0xc4ceb9fe1a85ec53;
    low ^= low >> 29;
  }
  bool operator==(const state_key&) const = default;
  struct hash {
    std::size_t operator()(const state_key& key) const { return key.low; }
  };
};

inline void add_view(state_key& key, const view& known, std::size_t words) {
  for (std::size_t at = 0; at < words; at += 8) {
    std::uint64_t eight = 0;
    for (std::size_t byte = at; byte != at + 8; ++byte) eight = eight << 8 | known[byte];
    key.add(eight);
  }
}

[[nodiscard]] inline state_key key_of(const state& whole) {
  state_key key;
  const auto words = whole.words.size();
  for (const auto& thread : whole.threads) {
    key.add(thread.results.size());
    for (const auto result : thread.results) key.add(result);
    key.add(thread.buffer.size());
    for (const auto& entry : thread.buffer) {
      key.add(entry.word);
      key.add(entry.value);
    }
    for (const auto* known : {&thread.now, &thread.acquired, &thread.released})
      add_view(key, *known, words);
  }
  for (const auto& word : whole.words) {
    key.add(word.size());
    for (const auto& one : word) {
      key.add(one.value);
      add_view(key, one.knows, words);
    }
  }
  add_view(key, whole.fenced, words);
  return key;
}

}  // namespace interleaving
