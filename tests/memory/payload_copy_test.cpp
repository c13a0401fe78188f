// Copying of payloads between places of every kind.
#include "memory/payload_copy.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <vector>

namespace {

using namespace manyworlds::detail;

/// Two pages-long places, of which any offset within a page can be had.
struct two_places {
  static constexpr std::size_t page = 4096;

  two_places() : from(5 * page), into(5 * page) {
    for (std::size_t i = 0; i < from.size(); ++i) {
      from[i] = static_cast<std::byte>(i * 7 + i / 256);
    }
  }
  static std::byte* page_in(std::vector<std::byte>& bytes) {
    const auto at = reinterpret_cast<std::uintptr_t>(bytes.data());
    return bytes.data() + (page - at % page);
  }

  std::vector<std::byte> from;
  std::vector<std::byte> into;
};

/// A clock by which everything takes as long as is said.
struct set_clock {
  static inline std::chrono::nanoseconds at{0};
  static inline std::chrono::nanoseconds each{0};
  static std::chrono::steady_clock::time_point now() {
    at += each;
    return std::chrono::steady_clock::time_point(at);
  }
};

template <class Copy>
void check_every_place(Copy copy) {
  two_places places;
  for (const std::size_t source : {0U, 1U, 16U, 63U, 4080U}) {
    for (const std::size_t target :
         {0U, 1U, 16U, 17U, 31U, 32U, 47U, 64U, 1024U, 4095U}) {
      for (const std::size_t bytes :
           {0U, 1U, 63U, 64U, 65U, 2047U, 2048U, 2049U, 4096U, 8192U}) {
        CAPTURE(source);
        CAPTURE(target);
        CAPTURE(bytes);
        std::fill(places.into.begin(), places.into.end(), std::byte{0xee});
        const std::byte* const from = two_places::page_in(places.from) + source;
        std::byte* const into = two_places::page_in(places.into) + target;
        copy(into, from, bytes);
        REQUIRE(std::equal(from, from + bytes, into));
        REQUIRE(into[-1] == std::byte{0xee});
        REQUIRE(into[bytes] == std::byte{0xee});
      }
    }
  }
}

}  // namespace

TEST_SUITE("payload copy") {
  TEST_CASE("a copy is whole wherever both stand, and touches nothing beside") {
    check_every_place(copy_payload);
  }
  TEST_CASE("so is one that goes past the caches") {
    check_every_place(copy_past_caches);
  }

#if defined(__SSE2__)
  TEST_CASE("so is one by lines, which only some processors use") {
    check_every_place([](std::byte* into, const std::byte* from, std::size_t bytes) {
      copy_by_lines(into, from, bytes,
                    [](__m128i* at, __m128i value) { _mm_store_si128(at, value); });
    });
  }
#endif

  TEST_CASE("a target just behind the source, within their pages, is told") {
    alignas(4096) static std::byte memory[3 * 4096];
    std::byte* const from = memory;
    CHECK_FALSE(is_just_behind(from + 4096, from));
    CHECK(is_just_behind(from + 4096 + 1, from));
    CHECK(is_just_behind(from + 8192 + 16, from));
    CHECK(is_just_behind(from + 31, from));
    CHECK_FALSE(is_just_behind(from + 32, from));
    CHECK(is_just_behind(from + 8192, from + 4096 - 16));
    CHECK_FALSE(is_just_behind(from + 4096, from + 16));
  }

  TEST_CASE("copies go past the caches while those through them are slower") {
    std::vector<std::byte> from(8192);
    std::vector<std::byte> into(8192);
    basic_copy_to_reader<set_clock> by;
    const auto copy_in = [&](int us) {
      set_clock::each = std::chrono::microseconds(us);
      by.copy(into.data(), from.data(), from.size());
    };
    copy_in(1);
    CHECK_FALSE(by.goes_past());
    copy_in(4);
    for (int i = 0; i < 16; ++i) {
      REQUIRE(by.goes_past());
      copy_in(3);
    }
    // It looks again.
    CHECK_FALSE(by.goes_past());
    copy_in(4);
    CHECK(by.goes_past());
    // It was no faster: something else is slow.
    copy_in(5);
    CHECK_FALSE(by.goes_past());
  }
}
