// Device steps: one operation of a kind after the other, on device memory. Its numbers
// tell the step, the rank and the place; all that comes out is looked at.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "gpu_worlds.hpp"

namespace manyworlds::nccl_tests {

/// Of a send each member but the root is the sender, of a receive the root is.
inline constexpr std::array all_step_kinds{
    operation_kind::broadcast,      operation_kind::reduce,
    operation_kind::all_reduce,     operation_kind::gather,
    operation_kind::all_gather,     operation_kind::scatter,
    operation_kind::reduce_scatter, operation_kind::all_to_all,
    operation_kind::send,           operation_kind::receive};

/// How an operation gets to the stream.
enum class launched { matched, unmatched };

class device_steps {
 public:
  device_steps(member& m, world& w, operation_kind kind, rank_t at, device_stream on)
      : member_(m),
        world_(w),
        kind_(kind),
        root_(at),
        in_(m.pool, all(), on),
        out_(m.pool, all(), on) {}

  [[nodiscard]] operation_kind kind() const noexcept { return kind_; }

  /// Takes part in one step and checks what came. Gives the failure that it ended with.
  task<failure> take(int step) {
    co_await prepare(step);
    failure why = co_await perform(launched::matched);
    if (!why) co_await check(step);
    co_return why;
  }
  task<void> prepare(int step) {
    const numbers mine = of(step, world_.rank(), 0, all());
    const numbers untouched(all(), -1);
    co_await copy(in_.view(), mine);
    co_await copy(out_.view(), untouched);
  }
  /// Sets `on_stream` when the stream has the operation, or will not get it.
  task<failure> perform(launched how, event* on_stream = nullptr) {
    const device_view in = in_.slice(0, count);
    const device_view out = out_.slice(0, count);
    const device_view wide_in = in_.view();
    const device_view wide_out = out_.view();
    const device_view none;
    const end_of end{world_, how, on_stream};
    switch (kind_) {
      case operation_kind::broadcast:
        co_return co_await end(world_.broadcast(in, root{root_}));
      case operation_kind::reduce:
        co_return co_await end(world_.reduce(in, out, sum, root{root_}));
      case operation_kind::all_reduce:
        co_return co_await end(world_.all_reduce(in, out, sum));
      case operation_kind::gather:
        co_return co_await end(
            world_.gather(in, is_root() ? wide_out : none, root{root_}));
      case operation_kind::all_gather:
        co_return co_await end(world_.all_gather(in, wide_out));
      case operation_kind::scatter:
        co_return co_await end(
            world_.scatter(is_root() ? wide_in : none, out, root{root_}));
      case operation_kind::reduce_scatter:
        co_return co_await end(world_.reduce_scatter(wide_in, out, sum));
      case operation_kind::all_to_all:
        co_return co_await end(world_.all_to_all(wide_in, wide_out));
      default:
        co_return co_await exchange(end);
    }
  }
  /// Checks what a step that succeeded has left in both buffers.
  task<void> check(int step) {
    const numbers in = co_await member_.read(in_);
    const numbers out = co_await member_.read(out_);
    CAPTURE(world_.name().str());
    CAPTURE(world_.epoch());
    CAPTURE(step);
    CHECK(in == expected_in(step));
    CHECK(out == expected_out(step));
  }

 private:
  using numbers = std::vector<std::int32_t>;
  static constexpr std::size_t count = 100;

  struct end_of {
    world& w;
    launched how;
    event* on_stream;

    template <class Operation>
    task<failure> operator()(Operation operation) const {
      if (how == launched::matched) {
        const auto ended = co_await outcome(std::move(operation));
        co_return ended.error();
      }
      const auto begun = co_await outcome(std::move(operation).unmatched().enqueue());
      if (on_stream) on_stream->set();
      if (!begun) co_return begun.error();
      const auto ended = co_await outcome(w.settled(*begun));
      co_return ended.error();
    }
  };

  task<failure> exchange(end_of end) {
    const bool sends = is_root() == (kind_ == operation_kind::receive);
    if (!is_root()) {
      if (sends) co_return co_await end(world_.send(in_.slice(0, count), to{root_}));
      co_return co_await end(world_.recv(out_.slice(0, count), from{root_}));
    }
    for (rank_t r = 0; r < world_.size(); ++r) {
      if (r == root_) continue;
      const std::size_t part = static_cast<std::size_t>(r) * count;
      failure why;
      if (sends) {
        why = co_await end(world_.send(in_.slice(part, count), to{r}));
      } else {
        why = co_await end(world_.recv(out_.slice(part, count), from{r}));
      }
      if (why) co_return why;
    }
    co_return failure();
  }

  [[nodiscard]] bool is_root() const { return world_.rank() == root_; }
  [[nodiscard]] std::size_t all() const {
    return static_cast<std::size_t>(world_.size()) * count;
  }
  /// The numbers of a rank's input from a place on.
  static numbers of(int step, rank_t rank, std::size_t begin, std::size_t size) {
    numbers these(size);
    for (std::size_t i = 0; i < size; ++i) {
      these[i] = step * 100'000 + rank * 10'000 + static_cast<std::int32_t>(begin + i);
    }
    return these;
  }
  [[nodiscard]] numbers sums(int step, std::size_t begin) const {
    numbers these(count, 0);
    for (rank_t r = 0; r < world_.size(); ++r) {
      const numbers added = of(step, r, begin, count);
      for (std::size_t i = 0; i < count; ++i) these[i] += added[i];
    }
    return these;
  }
  static void put(numbers& into, std::size_t part, const numbers& these) {
    std::copy(these.begin(), these.end(),
              into.begin() + static_cast<std::ptrdiff_t>(part * count));
  }

  [[nodiscard]] numbers expected_in(int step) const {
    numbers mine = of(step, world_.rank(), 0, all());
    if (kind_ == operation_kind::broadcast) put(mine, 0, of(step, root_, 0, count));
    return mine;
  }
  [[nodiscard]] numbers expected_out(int step) const {
    const auto self = static_cast<std::size_t>(world_.rank());
    const bool in_parts =
        kind_ == operation_kind::all_gather || kind_ == operation_kind::all_to_all ||
        (is_root() && (kind_ == operation_kind::gather || kind_ == operation_kind::send));
    numbers out(all(), -1);
    for (rank_t r = 0; in_parts && r < world_.size(); ++r) {
      if (kind_ == operation_kind::send && r == root_) continue;
      const std::size_t place = kind_ == operation_kind::all_to_all ? self * count : 0;
      put(out, static_cast<std::size_t>(r), of(step, r, place, count));
    }
    if (kind_ == operation_kind::all_reduce ||
        (kind_ == operation_kind::reduce && is_root())) {
      put(out, 0, sums(step, 0));
    }
    if (kind_ == operation_kind::reduce_scatter) put(out, 0, sums(step, self * count));
    if (kind_ == operation_kind::scatter ||
        (kind_ == operation_kind::receive && !is_root())) {
      put(out, 0, of(step, root_, self * count, count));
    }
    return out;
  }

  member& member_;
  world& world_;
  const operation_kind kind_;
  const rank_t root_;
  device_buffer<std::int32_t> in_;
  device_buffer<std::int32_t> out_;
};

}  // namespace manyworlds::nccl_tests
