#include "memory/reduce_elements.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "memory/element_kernels.hpp"
#include "reduced_by_hand.hpp"

namespace mw = manyworlds;
using namespace reduced_by_hand;

namespace {

constexpr mw::reduction all_reductions[] = {mw::sum, mw::prod, mw::max, mw::min, mw::avg};

std::vector<mw::element_kernels> all_kernels() {
  std::vector<mw::element_kernels> all{mw::portable_kernels()};
  if (const auto* avx2 = mw::avx2_kernels()) all.push_back(*avx2);
  all.push_back({"the fastest", mw::reduce_elements, mw::divide_elements});
  return all;
}

template <class T>
const std::byte* bytes(const std::vector<T>& values) {
  return reinterpret_cast<const std::byte*>(values.data());
}

template <class T>
std::string text_of(T value) {
  return std::to_string(std::bit_cast<bits_of<T>>(value));
}

template <class T>
void check_all(const mw::element_kernels& kernels, mw::reduction op,
               const std::vector<T>& low, const std::vector<T>& high) {
  std::vector<T> into(low.size());
  kernels.reduce(mw::dtype_of_v<T>, op, bytes(low), bytes(high),
                 reinterpret_cast<std::byte*>(into.data()), into.size());
  for (std::size_t i = 0; i < into.size(); ++i) {
    const T expected = reduced(op, low[i], high[i]);
    if (std::memcmp(&expected, &into[i], sizeof expected) == 0) continue;
    FAIL(kernels.name << ", " << mw::name_of(op) << " of patterns " << text_of(low[i])
                      << " and " << text_of(high[i]) << " is " << text_of(into[i])
                      << ", not " << text_of(expected));
  }
}

/// Operands and a result at chosen places, the result between bytes that must stay.
template <class T>
class placed_elements {
 public:
  placed_elements(std::size_t count, std::uint64_t seed)
      : count_(count),
        low_(random_values<T>(count, seed)),
        high_(random_values<T>(count, seed + 1)) {}

  void check(const mw::element_kernels& kernels, mw::reduction op, std::size_t low_at,
             std::size_t high_at, std::size_t into_at) {
    const std::byte* low = put(memory_[0], low_, low_at);
    const std::byte* high = put(memory_[1], high_, high_at);
    memory_[2].assign(size(), guard);
    run(kernels, op, low, high, memory_[2], into_at);
  }
  void check_in_place_of_low(const mw::element_kernels& kernels, mw::reduction op,
                             std::size_t low_at, std::size_t high_at) {
    const std::byte* low = put(memory_[0], low_, low_at);
    run(kernels, op, low, put(memory_[1], high_, high_at), memory_[0], low_at);
  }
  void check_in_place_of_high(const mw::element_kernels& kernels, mw::reduction op,
                              std::size_t low_at, std::size_t high_at) {
    const std::byte* high = put(memory_[1], high_, high_at);
    run(kernels, op, put(memory_[0], low_, low_at), high, memory_[1], high_at);
  }

 private:
  using storage = std::vector<std::byte>;
  static constexpr std::byte guard{0xA5};
  static constexpr std::size_t room = 192;

  [[nodiscard]] std::size_t size() const { return count_ * sizeof(T) + 2 * room; }

  /// `at` bytes past a multiple of 64.
  [[nodiscard]] static std::byte* place(storage& memory, std::size_t at) {
    std::byte* begin = memory.data() + 64;
    const auto over = reinterpret_cast<std::uintptr_t>(begin) % 64;
    return begin + (64 - over) % 64 + at;
  }

  const std::byte* put(storage& memory, const std::vector<T>& values, std::size_t at) {
    memory.assign(size(), guard);
    std::byte* begin = place(memory, at);
    if (count_ > 0) std::memcpy(begin, values.data(), count_ * sizeof(T));
    return begin;
  }

  void run(const mw::element_kernels& kernels, mw::reduction op, const std::byte* low,
           const std::byte* high, storage& into, std::size_t into_at) {
    std::byte* begin = place(into, into_at);
    kernels.reduce(mw::dtype_of_v<T>, op, low, high, begin, count_);
    for (std::size_t i = 0; i < count_; ++i) {
      const T expected = reduced(op, low_[i], high_[i]);
      if (std::memcmp(&expected, begin + i * sizeof(T), sizeof(T)) != 0) {
        FAIL(kernels.name << " " << mw::name_of(op) << " is wrong at " << i << " of "
                          << count_);
      }
    }
    const auto untouched = [](std::byte b) { return b == guard; };
    REQUIRE(std::all_of(into.data(), begin, untouched));
    REQUIRE(
        std::all_of(begin + count_ * sizeof(T), into.data() + into.size(), untouched));
  }

  std::size_t count_;
  std::vector<T> low_;
  std::vector<T> high_;
  std::array<storage, 3> memory_;
};

}  // namespace

#define ALL_ELEMENTS                                                                   \
  std::int8_t, std::uint8_t, std::int32_t, std::uint32_t, std::int64_t, std::uint64_t, \
      mw::f16, float, double, mw::bf16, mw::f8_e4m3, mw::f8_e5m2

TEST_SUITE_BEGIN("reduce_elements");

TEST_CASE_TEMPLATE("every pair of 8-bit patterns is reduced as one pair alone", T,
                   std::int8_t, std::uint8_t, mw::f8_e4m3, mw::f8_e5m2) {
  std::vector<T> low, high;
  for (unsigned a = 0; a < 256; ++a) {
    for (unsigned b = 0; b < 256; ++b) {
      low.push_back(from_pattern<T>(a));
      high.push_back(from_pattern<T>(b));
    }
  }
  for (const auto& kernels : all_kernels()) {
    for (const auto op : all_reductions) check_all(kernels, op, low, high);
  }
}

TEST_CASE_TEMPLATE("special values meet each other and arbitrary ones", T, ALL_ELEMENTS) {
  const auto special = special_values<T>();
  std::vector<T> low = random_values<T>(20'000, 1), high = random_values<T>(20'000, 2);
  for (const T a : special) {
    for (const T b : special) {
      low.push_back(a);
      high.push_back(b);
    }
  }
  for (const auto& kernels : all_kernels()) {
    for (const auto op : all_reductions) {
      check_all(kernels, op, low, high);
      check_all(kernels, op, high, low);
    }
  }
}

TEST_CASE_TEMPLATE("no count reaches beyond its last element", T, ALL_ELEMENTS) {
  for (const auto& kernels : all_kernels()) {
    for (std::size_t count = 0; count <= 67; ++count) {
      placed_elements<T> of_count(count, count);
      for (const auto op : all_reductions) of_count.check(kernels, op, 0, 0, 0);
      of_count.check(kernels, mw::sum, 1, 2, 3);
      of_count.check_in_place_of_low(kernels, mw::max, 5, 6);
      of_count.check_in_place_of_high(kernels, mw::prod, 7, 8);
    }
    placed_elements<T> many(100'003, 3);
    many.check(kernels, mw::sum, 0, 16, 48);
    many.check_in_place_of_low(kernels, mw::sum, 16, 1);
  }
}

TEST_CASE_TEMPLATE("pointers need no alignment, also in place", T, ALL_ELEMENTS) {
  placed_elements<T> elements(131, 4);
  for (const auto& kernels : all_kernels()) {
    for (std::size_t at = 0; at < 64; ++at) {
      for (const auto op : {mw::sum, mw::min}) {
        elements.check(kernels, op, at, 0, 0);
        elements.check(kernels, op, 0, at, 0);
        elements.check(kernels, op, 0, 0, at);
        elements.check(kernels, op, at, 63 - at, at * 7 % 64);
        elements.check_in_place_of_low(kernels, op, at, at * 5 % 64);
        elements.check_in_place_of_high(kernels, op, at * 5 % 64, at);
      }
    }
  }
}

TEST_CASE("what is not a number wins, and loses its sign and payload") {
  const std::uint32_t nans[] = {0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFC00000};
  for (const auto& kernels : all_kernels()) {
    for (const std::uint32_t nan : nans) {
      for (const auto op : all_reductions) {
        const std::array low{std::bit_cast<float>(nan), 1.0f};
        const std::array high{-std::numeric_limits<float>::infinity(),
                              std::bit_cast<float>(nan)};
        std::array<std::uint32_t, 2> into{};
        kernels.reduce(mw::dtype::float32, op, reinterpret_cast<const std::byte*>(&low),
                       reinterpret_cast<const std::byte*>(&high),
                       reinterpret_cast<std::byte*>(&into), 2);
        CHECK(into == std::array<std::uint32_t, 2>{0x7FC00000, 0x7FC00000});
      }
    }
  }
}

TEST_CASE("float16 overflows to infinity, float8 stops at its largest") {
  for (const auto& kernels : all_kernels()) {
    const auto doubled = [&](auto largest) {
      auto* at = reinterpret_cast<std::byte*>(&largest);
      kernels.reduce(mw::dtype_of_v<decltype(largest)>, mw::sum, at, at, at, 1);
      return static_cast<float>(largest);
    };
    CHECK(doubled(mw::f16{65504.0f}) == std::numeric_limits<float>::infinity());
    CHECK(doubled(mw::bf16{3e38f}) == std::numeric_limits<float>::infinity());
    CHECK(doubled(mw::f8_e4m3{-448.0f}) == -448.0f);
    CHECK(doubled(mw::f8_e5m2{57344.0f}) == 57344.0f);
  }
}

TEST_CASE_TEMPLATE("an average is divided in the elements' own arithmetic", T,
                   ALL_ELEMENTS) {
  std::vector<T> values = random_values<T>(1021, 5);
  const auto special = special_values<T>();
  values.insert(values.end(), special.begin(), special.end());
  if constexpr (sizeof(T) <= 2) {
    for (unsigned p = 0; p < 1U << (8 * sizeof(T)); ++p)
      values.push_back(from_pattern<T>(p));
  }
  const std::int64_t divisors[] = {1,   2,   3,     4,          5,          7,
                                   127, 255, 65536, 0x7FFFFFFF, 0xFFFFFFFF, 0x100000001};
  for (const auto& kernels : all_kernels()) {
    for (const auto divisor : divisors) {
      std::vector<std::byte> memory(1 + values.size() * sizeof(T) + 1, std::byte{0xA5});
      std::byte* data = memory.data() + 1;
      std::memcpy(data, values.data(), values.size() * sizeof(T));
      kernels.divide(mw::dtype_of_v<T>, data, values.size(), divisor);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const T expected = divided(values[i], divisor);
        if (std::memcmp(&expected, data + i * sizeof(T), sizeof(T)) == 0) continue;
        FAIL(kernels.name << ": pattern " << text_of(values[i]) << " by " << divisor);
      }
      CHECK(memory.front() == std::byte{0xA5});
      CHECK(memory.back() == std::byte{0xA5});
    }
  }
}

TEST_SUITE_END();
