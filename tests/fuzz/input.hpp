// What a fuzzer makes up, taken piece by piece.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

namespace manyworlds::fuzzing {

inline void must(bool holds) {
  if (!holds) std::abort();
}

/// Takes bytes off the input; zeros when it has ended.
class input {
 public:
  input(const std::uint8_t* data, std::size_t size) : rest_(data, size) {}
  [[nodiscard]] bool ended() const { return rest_.empty(); }
  template <class T>
  T take() {
    T value{};
    const std::size_t part = std::min(rest_.size(), sizeof value);
    std::memcpy(&value, rest_.data(), part);
    rest_ = rest_.subspan(part);
    return value;
  }
  /// What is left of it; the rest of the place stays as it was.
  void take_into(std::span<std::byte> place) {
    const std::size_t part = std::min(rest_.size(), place.size());
    if (part > 0) std::memcpy(place.data(), rest_.data(), part);
    rest_ = rest_.subspan(part);
  }

 private:
  std::span<const std::uint8_t> rest_;
};

}  // namespace manyworlds::fuzzing
