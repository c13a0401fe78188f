// Reads weights, whole and by parts, for pypi_test.py.
//
// weight_user PATH: a line for each tensor (name, type, shape), and one for each of its
// parts with the CRC-32 of its bytes: whole, and halves and thirds of each dimension that
// divides.
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "manyworlds/weights/weight_files.hpp"
#include "manyworlds/world/runtime.hpp"

namespace mw = manyworlds;

namespace {

std::uint32_t crc_of(std::span<const std::uint8_t> bytes) {
  static const auto table = [] {
    std::array<std::uint32_t, 256> made{};
    for (std::uint32_t i = 0; i < made.size(); ++i) {
      std::uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit)
        value = value >> 1 ^ ((value & 1) != 0 ? 0xedb88320U : 0U);
      made[i] = value;
    }
    return made;
  }();
  std::uint32_t crc = ~std::uint32_t{0};
  for (const std::uint8_t byte : bytes) crc = table[(crc ^ byte) & 0xff] ^ crc >> 8;
  return ~crc;
}

mw::task<void> show(const mw::weight_files& weights, std::string name,
                    mw::weight_slice part, std::string how) {
  std::vector<std::uint8_t> bytes(part.bytes());
  auto loading = weights.load_into(bytes, name, std::move(part));
  co_await std::move(loading);
  fmt::print("{} {} {}\n", name, how, crc_of(bytes));
}

mw::task<void> show_all(std::string path) {
  auto opening = mw::weight_files::open(std::move(path));
  const mw::weight_files weights = co_await std::move(opening);
  for (const std::string& name : weights.names()) {
    const mw::stored_tensor& stored = weights.at(name);
    fmt::print("{} is {} {}\n", name, stored.type, stored.shape.text());
    co_await show(weights, name, mw::weight_slice::whole(stored), "whole");
    for (std::size_t d = 0; d < stored.shape.dimensions(); ++d) {
      for (std::int64_t parts = 2; parts <= 3; ++parts) {
        if (stored.shape[d] % parts != 0) continue;
        for (std::int64_t part = 0; part < parts; ++part) {
          co_await show(weights, name, mw::weight_slice::split(stored, d, part, parts),
                        fmt::format("{}:{}/{}", d, part, parts));
        }
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    mw::runtime rt;
    rt.run(show_all(argv[1]));
  } catch (const std::exception& e) {
    fmt::print("error: {}\n", e.what());
    return 1;
  }
  return 0;
}
