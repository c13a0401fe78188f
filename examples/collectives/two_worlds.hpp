// The common part of the six collectives' programs: two worlds of three, with the same
// process as rank 0 of both. It runs one task per world, a hundred steps in each.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <manyworlds/mw.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "../shared/tensor.hpp"

inline constexpr mw::rank_t members = 3;

/// Returns what a rank brings to a step: a digit, which all can compute and check.
inline float digit(mw::rank_t rank, int step) {
  std::minstd_rand random(static_cast<unsigned>(1000 * step + rank));
  return static_cast<float>(random() / 1000 % 10);
}
inline void expect(bool holds) {
  if (!holds) throw std::logic_error("a wrong value came out");
}

/// One step of one member, with tensors of this memory; returns a text of the result.
using step_function = mw::task<std::string> (*)(mw::world& w, int step,
                                                const tensor_memory& memory);

/// A tensor with the same value everywhere.
inline tensor filled(std::size_t count, float value, const tensor_memory& memory) {
  tensor x(count, memory);
  std::ranges::fill(x.values(), value);
  return x;
}
inline bool is_all(tensor& x, float value) {
  return std::ranges::count(x.values(), value) == std::ssize(x.values());
}

/// The main function of such a program.
int step_in_two_worlds(const char* name, step_function step, int argc, char** argv);
