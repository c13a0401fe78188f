// Rings, and algorithms of as many steps as the number of members has bits.
#include <algorithm>
#include <bit>

#include "host/collective_algorithms.hpp"

namespace manyworlds::inline v0::detail::host {

namespace {

// Counts ranks from the root, so that the root is 0 in every tree.
class tree_place {
 public:
  tree_place(const schedule& x) noexcept
      : size_(x.size()),
        root_(x.shape().root),
        number_((x.self() - root_ + size_) % size_) {}

  [[nodiscard]] bool is_root() const noexcept { return number_ == 0; }
  /// Returns the lowest set bit of a member below the root; for the root, a power of
  /// two beyond all.
  [[nodiscard]] rank_t span() const noexcept {
    if (is_root()) {
      return static_cast<rank_t>(std::bit_ceil(static_cast<unsigned>(size_)));
    }
    return number_ & -number_;
  }
  [[nodiscard]] rank_t parent() const noexcept { return rank(number_ - span()); }
  [[nodiscard]] bool has_child(rank_t distance) const noexcept {
    return distance < span() && number_ + distance < size_;
  }
  [[nodiscard]] rank_t child(rank_t distance) const noexcept {
    return rank(number_ + distance);
  }

 private:
  [[nodiscard]] rank_t rank(rank_t number) const noexcept {
    return (number + root_) % size_;
  }
  rank_t size_;
  rank_t root_;
  rank_t number_;
};

}  // namespace

task<void> gather_parts_in_ring(schedule& x, const parts& by,
                                std::span<std::byte> whole) {
  for (rank_t step = 0; step < x.size() - 1; ++step) {
    x.send(x.after(1), by.of(whole, x.after(-step)));
    x.receive(x.after(-1), by.of(whole, x.after(-step - 1)));
    co_await x.settled();
  }
}

task<void> gather_parts_at_once(schedule& x, const parts& by,
                                std::span<std::byte> whole) {
  for (rank_t d = 1; d < x.size(); ++d) {
    x.receive(x.after(-d), by.of(whole, x.after(-d)));
    x.send(x.after(d), by.of(whole, x.self()));
  }
  co_await x.settled();
}

task<void> broadcast_by_tree(schedule& x) {
  const collective_shape& s = x.shape();
  const tree_place here(x);
  if (!here.is_root()) {
    x.receive(here.parent(), s.out);
    co_await x.received();
  }
  for (rank_t distance = here.span() / 2; distance > 0; distance /= 2) {
    if (here.has_child(distance)) x.send(here.child(distance), s.out);
  }
  co_await x.settled();
}

task<void> broadcast_in_ring(schedule& x) {
  const collective_shape& s = x.shape();
  const parts by(s.out.size() / size_of(s.type), x.size(), size_of(s.type));
  if (x.self() == s.root) {
    for (rank_t d = 1; d < x.size(); ++d) x.send(x.after(d), by.of(s.in, x.after(d)));
  } else {
    x.receive(s.root, by.of(s.out, x.self()));
    co_await x.received();
  }
  // The ring begins at the root: its data is not brought back to it.
  const bool is_last = x.after(1) == s.root;
  for (rank_t step = 0; step < x.size() - 1; ++step) {
    if (!is_last) x.send(x.after(1), by.of(s.out, x.after(-step)));
    if (x.self() != s.root) x.receive(x.after(-1), by.of(s.out, x.after(-step - 1)));
    co_await x.settled();
  }
}

// A parent combines its children's sums in the order of their distance: the same order
// in every run.
task<void> reduce_by_tree(schedule& x) {
  const collective_shape& s = x.shape();
  const tree_place here(x);
  const std::size_t bytes = s.in.size();
  const std::span<std::byte> memory = x.scratch(2 * bytes);
  const std::span<std::byte> come = memory.first(bytes);
  const std::span<std::byte> sum = here.is_root() ? s.out : memory.last(bytes);
  std::span<const std::byte> so_far = s.in;
  for (rank_t distance = 1; distance < here.span(); distance *= 2) {
    if (!here.has_child(distance)) continue;
    x.receive(here.child(distance), come);
    co_await x.received();
    const bool is_last = here.is_root() && !here.has_child(distance * 2);
    co_await combine_slices(x, so_far, come, sum, is_last);
    so_far = sum;
  }
  if (!here.is_root()) {
    x.send(here.parent(), so_far);
  }
  co_await x.settled();
}

// Recursive doubling. Both of a pair combine the lower ranks' sum with the higher
// ones', in this order, and so get the same bits. Each member beyond a power of two
// gives its data to its neighbour first, and gets the sum last.
task<void> all_reduce_by_doubling(schedule& x) {
  const collective_shape& s = x.shape();
  const std::size_t bytes = s.in.size();
  const std::span<std::byte> memory = x.scratch(2 * bytes);
  const std::span<std::byte> come = memory.first(bytes);
  const std::span<std::byte> own = memory.last(bytes);
  co_await copy_slices(x, s.in, own);
  const auto power = static_cast<rank_t>(std::bit_floor(static_cast<unsigned>(x.size())));
  const rank_t beyond = x.size() - power;
  const bool is_paired = x.self() < 2 * beyond;
  const bool steps_aside = is_paired && x.self() % 2 == 0;
  if (is_paired && !steps_aside) {
    x.receive(x.self() - 1, come);
    co_await x.received();
    co_await combine_slices(x, come, own, own);
  } else if (steps_aside) {
    x.send(x.self() + 1, own);
    x.receive(x.self() + 1, s.out);
    co_await x.settled();
    co_return;
  }
  const rank_t number = is_paired ? x.self() / 2 : x.self() - beyond;
  for (rank_t distance = 1; distance < power; distance *= 2) {
    const rank_t other = number ^ distance;
    const rank_t peer = other < beyond ? other * 2 + 1 : other + beyond;
    x.send(peer, own);
    x.receive(peer, come);
    co_await x.settled();
    const bool is_low = number < other;
    const bool is_last = distance * 2 >= power;
    co_await combine_slices(x, is_low ? own : come, is_low ? come : own, own, is_last);
  }
  co_await copy_slices(x, own, s.out);
  if (is_paired) x.send(x.self() - 1, s.out);
  co_await x.settled();
}

}  // namespace manyworlds::inline v0::detail::host
