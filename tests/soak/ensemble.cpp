#include "soak/ensemble.hpp"

#include <fmt/format.h>

#include <array>

#include "manyworlds/coro/sleep.hpp"
#include "simulation/pattern.hpp"
#include "world/world_core.hpp"

namespace manyworlds_tests::soak {

namespace {

using kind = mw::operation_kind;

constexpr kind kinds[] = {kind::barrier,    kind::broadcast,  kind::reduce,
                          kind::all_reduce, kind::gather,     kind::all_gather,
                          kind::scatter,    kind::all_to_all, kind::reduce_scatter};
constexpr std::uint64_t no_kind = std::size(kinds);

/// What a member gives to a collective at that place.
std::uint64_t given(std::uint64_t number, mw::rank_t rank, std::uint64_t at) {
  return mixed(number << 8 | static_cast<std::uint64_t>(rank)) + at * 0x9e3779b97f4a7c15u;
}

/// Whether the input has a part for each member.
bool takes_parts(kind k) {
  return k == kind::scatter || k == kind::all_to_all || k == kind::reduce_scatter;
}
bool gives_parts(kind k) {
  return k == kind::gather || k == kind::all_gather || k == kind::all_to_all;
}
bool has_one_receiver(kind k) { return k == kind::reduce || k == kind::gather; }

/// Elements in memory that is watched after the collective.
class watched_elements {
 public:
  watched_elements(watched_memory& memory, std::uint64_t count)
      : bytes_(memory, count * sizeof(std::uint64_t), "of a collective") {}
  [[nodiscard]] std::span<std::uint64_t> get() {
    const auto all = bytes_.bytes();
    return {reinterpret_cast<std::uint64_t*>(all.data()),
            all.size() / sizeof(std::uint64_t)};
  }

 private:
  watched_buffer bytes_;
};

}  // namespace

template <class Operation>
mw::task<mw::failure> ensemble::recorded(kind k, std::uint64_t number, Operation op) {
  op_entry e;
  e.process = site_.process;
  e.instance = mw::access::core(world_).instance();
  e.kind = k;
  e.number = number;
  e.started = site_.now();
  op_watch watch(site_.story, std::move(e), site_.now);
  const auto r = co_await mw::outcome(std::move(op));
  if (r) {
    watch.done();
  } else {
    watch.failed(r.error());
  }
  co_return r.error();
}

mw::task<mw::failure> ensemble::told(std::span<std::uint64_t, 4> words,
                                     std::uint64_t number) {
  watched_elements buffer(site_.memory, words.size());
  std::copy(words.begin(), words.end(), buffer.get().begin());
  mw::failure f = co_await recorded(kind::broadcast, number,
                                    world_.broadcast(buffer.get(), mw::root(0)));
  std::copy_n(buffer.get().begin(), words.size(), words.begin());
  co_return f;
}

mw::task<void> ensemble::agree_on(mw::time_point& end) {
  std::array<std::uint64_t, 4> words{
      static_cast<std::uint64_t>(end.time_since_epoch().count())};
  const mw::failure f = co_await told(words, 0);
  if (f) throw mw::world_error(f);
  end = mw::time_point(mw::duration(words[0]));
}

ensemble::turn ensemble::any_turn(std::uint64_t number) {
  auto& random = site_.random;
  const std::uint64_t size = static_cast<std::uint64_t>(world_.size());
  const std::uint64_t count =
      random.one_in(8) ? random.below(100'000) : random.below(2'000);
  return {number, random.below(no_kind), 1 + count, random.below(size)};
}

mw::task<void> ensemble::perform(mw::time_point end) {
  for (std::uint64_t number = 1;; number += 2) {
    turn t;
    if (world_.rank() == 0) {
      co_await mw::sleep_for(site_.random.at_most(600ms));
      t = any_turn(number);
      if (site_.now() >= end) t.kind = no_kind;
    }
    std::array<std::uint64_t, 4> words{t.number, t.kind, t.count, t.root};
    const mw::failure f = co_await told(words, number);
    if (f) co_return;
    if (words[0] != number || words[1] > no_kind) {
      site_.story.complain("law 1: a broadcast that succeeded brought something else");
      co_return;
    }
    if (words[1] == no_kind) co_return;
    t = {words[0] + 1, words[1], words[2], words[3]};
    const bool goes_on = co_await take(t);
    if (!goes_on) co_return;
  }
}

mw::task<bool> ensemble::take(turn t) {
  const kind k = kinds[t.kind];
  const auto size = static_cast<std::uint64_t>(world_.size());
  watched_elements input(site_.memory, t.count * (takes_parts(k) ? size : 1));
  watched_elements output(site_.memory, t.count * (gives_parts(k) ? size : 1));
  const elements in = input.get();
  const elements out = output.get();
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = given(t.number, world_.rank(), i);
  const bool is_moved =
      k != kind::reduce && k != kind::all_reduce && k != kind::reduce_scatter;
  // Awaited in a condition, g++ 12 would destroy its result twice.
  auto part = is_moved ? move(k, t, in, out) : reduce(k, t, in, out);
  const mw::failure f = co_await std::move(part);
  if (f) co_return false;
  const bool is_receiver =
      !has_one_receiver(k) || static_cast<std::uint64_t>(world_.rank()) == t.root;
  if (k != kind::barrier && is_receiver) check(k, t, k == kind::broadcast ? in : out);
  co_return true;
}

mw::task<mw::failure> ensemble::move(kind k, turn t, elements in, elements out) {
  const mw::root at(static_cast<mw::rank_t>(t.root));
  switch (k) {
    case kind::barrier:
      co_return co_await recorded(k, t.number, world_.barrier());
    case kind::broadcast:
      co_return co_await recorded(k, t.number, world_.broadcast(in, at));
    case kind::gather:
      co_return co_await recorded(k, t.number, world_.gather(in, out, at));
    case kind::all_gather:
      co_return co_await recorded(k, t.number, world_.all_gather(in, out));
    case kind::scatter:
      co_return co_await recorded(k, t.number, world_.scatter(in, out, at));
    default:
      co_return co_await recorded(k, t.number, world_.all_to_all(in, out));
  }
}

mw::task<mw::failure> ensemble::reduce(kind k, turn t, elements in, elements out) {
  const mw::root at(static_cast<mw::rank_t>(t.root));
  switch (k) {
    case kind::reduce:
      co_return co_await recorded(k, t.number, world_.reduce(in, out, mw::sum, at));
    case kind::all_reduce:
      co_return co_await recorded(k, t.number, world_.all_reduce(in, out, mw::sum));
    default:
      co_return co_await recorded(k, t.number, world_.reduce_scatter(in, out, mw::sum));
  }
}

std::uint64_t ensemble::expected(kind k, const turn& t, std::uint64_t at) const {
  const auto mine = static_cast<std::uint64_t>(world_.rank()) * t.count;
  const auto part = static_cast<mw::rank_t>(at / t.count);
  const auto root = static_cast<mw::rank_t>(t.root);
  switch (k) {
    case kind::broadcast:
      return given(t.number, root, at);
    case kind::gather:
    case kind::all_gather:
      return given(t.number, part, at % t.count);
    case kind::scatter:
      return given(t.number, root, mine + at);
    case kind::all_to_all:
      return given(t.number, part, mine + at % t.count);
    default: {
      std::uint64_t sum = 0;
      for (mw::rank_t r = 0; r < world_.size(); ++r) {
        sum += given(t.number, r, k == kind::reduce_scatter ? mine + at : at);
      }
      return sum;
    }
  }
}

void ensemble::check(kind k, const turn& t, elements out) {
  for (std::uint64_t i = 0; i < out.size(); ++i) {
    if (out[i] == expected(k, t, i)) continue;
    site_.story.complain(fmt::format(
        "law 1: {} {} of {}@{} with {} elements succeeded at rank {}, and is wrong at {}",
        mw::name_of(k), t.number, world_.name().view(), world_.epoch(), t.count,
        world_.rank(), i));
    return;
  }
}

}  // namespace manyworlds_tests::soak
