// Orders about collectives, as member.cpp lists them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "traffic_orders.hpp"

namespace manyworlds::process_tests {

/// One collective after the other, each with a root of its own and with elements that
/// tell the step, the rank and the place; all that comes out is looked at.
class collective_steps {
 public:
  collective_steps(world& w, const std::string& kind, std::size_t count)
      : world_(w),
        kind_(kind),
        count_(count),
        size_(static_cast<std::uint64_t>(w.size())),
        rank_(static_cast<std::uint64_t>(w.rank())) {}

  /// False if what came out is wrong.
  task<bool> take(std::uint64_t step) {
    const auto at = static_cast<rank_t>(step % size_);
    const bool is_root = at == world_.rank();
    const auto all = static_cast<std::size_t>(size_) * count_;
    step_ = step;
    if (kind_ == "barrier") {
      co_await world_.barrier();
      co_return true;
    }
    if (kind_ == "broadcast") {
      fill(in_, count_, is_root ? rank_ : 99);
      co_await world_.broadcast(in_, root(at));
      co_return holds(in_, 0, count_, static_cast<std::uint64_t>(at));
    }
    if (kind_ == "reduce") {
      fill(in_, count_, rank_);
      out_.resize(count_);
      co_await world_.reduce(in_, out_, sum, root(at));
      co_return !is_root || holds_sum(out_, 0);
    }
    if (kind_ == "all_reduce") {
      fill(in_, count_, rank_);
      co_await world_.all_reduce(in_, sum);
      co_return holds_sum(in_, 0);
    }
    if (kind_ == "gather" || kind_ == "all_gather") {
      fill(in_, count_, rank_);
      out_.assign(all, 0);
      if (kind_ == "gather") co_await world_.gather(in_, out_, root(at));
      if (kind_ == "all_gather") co_await world_.all_gather(in_, out_);
      co_return (kind_ == "gather" && !is_root) || holds_all_parts();
    }
    if (kind_ == "scatter") {
      fill(in_, all, rank_);
      out_.assign(count_, 0);
      co_await world_.scatter(in_, out_, root(at));
      co_return holds(out_, rank_ * count_, count_, static_cast<std::uint64_t>(at));
    }
    if (kind_ == "reduce_scatter") {
      fill(in_, all, rank_);
      out_.assign(count_, 0);
      co_await world_.reduce_scatter(in_, out_, sum);
      co_return holds_sum(out_, rank_ * count_);
    }
    fill(in_, all, rank_);
    out_.assign(all, 0);
    co_await world_.all_to_all(in_, out_);
    co_return holds_parts_for_us();
  }

 private:
  using numbers = std::vector<std::uint64_t>;

  [[nodiscard]] std::uint64_t element(std::uint64_t rank, std::size_t i) const {
    return step_ * 1'000'000'000 + rank * 100'000'000 + i;
  }
  void fill(numbers& into, std::size_t count, std::uint64_t rank) const {
    into.resize(count);
    for (std::size_t i = 0; i < count; ++i) into[i] = element(rank, i);
  }
  /// Elements from `from` on of what that rank gave.
  [[nodiscard]] bool holds(const numbers& found, std::size_t from, std::size_t count,
                           std::uint64_t rank, std::size_t where = 0) const {
    for (std::size_t i = 0; i < count; ++i) {
      if (found[where + i] != element(rank, from + i)) return false;
    }
    return true;
  }
  [[nodiscard]] bool holds_sum(const numbers& found, std::size_t from) const {
    for (std::size_t i = 0; i < found.size(); ++i) {
      std::uint64_t total = 0;
      for (std::uint64_t r = 0; r < size_; ++r) total += element(r, from + i);
      if (found[i] != total) return false;
    }
    return true;
  }
  [[nodiscard]] bool holds_all_parts() const {
    bool right = true;
    for (std::uint64_t r = 0; r < size_; ++r)
      right = right && holds(out_, 0, count_, r, static_cast<std::size_t>(r) * count_);
    return right;
  }
  [[nodiscard]] bool holds_parts_for_us() const {
    bool right = true;
    for (std::uint64_t r = 0; r < size_; ++r) {
      right = right && holds(out_, static_cast<std::size_t>(rank_) * count_, count_, r,
                             static_cast<std::size_t>(r) * count_);
    }
    return right;
  }

  world& world_;
  std::string kind_;
  std::size_t count_;
  std::uint64_t size_;
  std::uint64_t rank_;
  std::uint64_t step_ = 0;
  numbers in_;
  numbers out_;
};

inline task<void> collect(world& w, const words& order, std::uint64_t& n) {
  collective_steps steps(w, order[2], std::stoul(order[3]));
  tell("collecting " + order[1]);
  for (const auto count = std::stoul(order[4]); n < count;) {
    const bool right = co_await steps.take(n);
    if (!right) {
      tell("wrong " + order[1] + " " + std::to_string(n));
      co_return;
    }
    if (++n == 10) tell("under way " + order[1]);
  }
  tell("collected " + order[1] + " " + std::to_string(n));
}

}  // namespace manyworlds::process_tests
