// The model checker's words: std::atomic's interface, as far as shm uses it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "link/interleaving_memory.hpp"

namespace interleaving {

/// A word of the model, with std::atomic's interface as far as shm uses it.
template <class T>
class atomic {
 public:
  atomic() : atomic(T{}) {}
  explicit atomic(T value) : id_(machine::current()->add_word(value)) {}
  atomic(const atomic&) = delete;

  T load(std::memory_order order) const {
    return static_cast<T>(machine::current()->load(id_, order));
  }
  void store(T value, std::memory_order order) {
    machine::current()->store(id_, value, order);
  }
  T exchange(T value, std::memory_order order) {
    if (machine::current()->planted().split_exchange) {
      const T old = load(order);
      store(value, order);
      return old;
    }
    return change(order, [&](std::uint64_t& word) { return word = value, true; });
  }
  T fetch_or(T bits, std::memory_order order) {
    return change(order, [&](std::uint64_t& word) { return word |= bits, true; });
  }
  T fetch_add(T more, std::memory_order order) {
    return change(order, [&](std::uint64_t& word) { return word += more, true; });
  }
  bool compare_exchange_strong(T& expected, T desired, std::memory_order order,
                               std::memory_order) {
    const T wanted = expected;
    if (machine::current()->planted().split_exchange) {
      expected = load(order);
      if (expected == wanted) store(desired, order);
      return expected == wanted;
    }
    expected = change(order, [&](std::uint64_t& word) {
      if (word != wanted) return false;
      word = desired;
      return true;
    });
    return expected == wanted;
  }

  [[nodiscard]] std::size_t id() const { return id_; }

 private:
  template <class Change>
  T change(std::memory_order order, Change change) {
    return static_cast<T>(machine::current()->read_modify_write(id_, order, change));
  }

  std::size_t id_;
};

}  // namespace interleaving
