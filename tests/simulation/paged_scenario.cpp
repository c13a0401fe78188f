// Small collectives through pages, one after the other, and trouble at a step of them.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/serve/keep.hpp"
#include "manyworlds/world/outcome.hpp"
#include "simulation/pattern.hpp"
#include "simulation/scenario.hpp"
#include "simulation/world_cluster.hpp"

namespace manyworlds_tests {

namespace {

/// Collectives of one epoch; the first twelve or so go by messages.
constexpr std::uint64_t collectives_to_do = 60;
/// More than forming and all collectives take.
constexpr std::uint64_t steps_until_trouble = 3'000;

/// What all members do under one number.
struct paged_turn {
  mw::operation_kind kind;
  std::size_t count;
  mw::rank_t root;
};

class paged_scenario {
 public:
  paged_scenario(std::uint64_t seed, std::size_t lines, placement where)
      : all_(seed, network(where)), seed_(seed), where_(where) {
    all_.lines_kept = lines;
  }
  /// What happens, and when, by the seed.
  seed_report run();
  /// One of three members is killed at that step.
  seed_report run_with_kill(std::uint64_t step);

 private:
  enum class trouble : std::uint8_t { none, kill, pause, stop, fail, leave, kinds };

  static mw::simulation_options network(placement where) {
    mw::simulation_options o;
    o.shared_memory = where == placement::together;
    if (o.shared_memory) o.longest_turn = 2us;
    return o;
  }
  [[nodiscard]] std::uint64_t pick(std::uint64_t below) {
    return all_.sim.random().below(below);
  }
  [[nodiscard]] paged_turn turn_of(std::uint64_t epoch, std::uint64_t number) const;
  /// What a member gives: unlike in every epoch, number, rank and place.
  [[nodiscard]] static std::int32_t given(std::uint64_t epoch, std::uint64_t number,
                                          mw::rank_t rank, std::size_t at) {
    const std::uint64_t of =
        epoch << 40 ^ number << 20 ^ static_cast<std::uint64_t>(rank) << 17 ^ at;
    return static_cast<std::int32_t>(mixed(of) % 100'000);
  }
  void join(member_process& m, mw::rank_t rank) { m.start(live(m, rank)); }
  mw::task<void> live(member_process& self, mw::rank_t rank);
  mw::task<void> work(mw::world& w);
  [[nodiscard]] bool leaves_now(const mw::world& w);
  mw::task<void> take_turn(mw::world& w, std::uint64_t number);
  void check(const mw::world& w, std::uint64_t number, const paged_turn& turn,
             std::span<const std::int32_t> out);
  void at_the_step();
  [[nodiscard]] seed_report course(std::uint64_t step);
  [[nodiscard]] bool all_are_done() const {
    return trouble_is_over_ &&
           std::all_of(done_.begin(), done_.end(),
                       [&](std::uint64_t e) { return e != 0 && e == done_.front(); });
  }

  cluster all_;
  std::uint64_t seed_;
  placement where_;
  mw::rank_t size_ = 0;
  trouble kind_ = trouble::none;
  std::size_t victim_ = 0;
  bool trouble_has_begun_ = false;
  bool trouble_is_over_ = false;
  bool must_leave_ = false;
  bool is_over_ = false;
  /// The epoch that the victim has left.
  std::uint64_t left_in_ = 0;
  /// By rank: the epoch in which all collectives were done.
  std::vector<std::uint64_t> done_;
};

paged_turn paged_scenario::turn_of(std::uint64_t epoch, std::uint64_t number) const {
  constexpr mw::operation_kind kinds[] = {
      mw::operation_kind::barrier,    mw::operation_kind::broadcast,
      mw::operation_kind::reduce,     mw::operation_kind::all_reduce,
      mw::operation_kind::gather,     mw::operation_kind::all_gather,
      mw::operation_kind::scatter,    mw::operation_kind::all_to_all,
      mw::operation_kind::all_reduce, mw::operation_kind::reduce_scatter};
  constexpr std::size_t counts[] = {1, 2, 26, 27, 300, 1'000, 3'000, 20'000};
  const std::uint64_t chance = mixed(seed_ << 32 ^ epoch << 16 ^ number);
  return {kinds[chance % 10], counts[chance / 10 % 8],
          static_cast<mw::rank_t>(chance / 80 % static_cast<std::uint64_t>(size_))};
}

mw::task<void> paged_scenario::take_turn(mw::world& w, std::uint64_t number) {
  const paged_turn turn = turn_of(w.epoch(), number);
  const bool is_root = turn.root == w.rank();
  const auto all = static_cast<std::size_t>(size_);
  const bool gives_all = turn.kind == mw::operation_kind::reduce_scatter ||
                         turn.kind == mw::operation_kind::all_to_all ||
                         turn.kind == mw::operation_kind::scatter;
  const bool takes_all = turn.kind == mw::operation_kind::gather ||
                         turn.kind == mw::operation_kind::all_gather ||
                         turn.kind == mw::operation_kind::all_to_all;
  watched_buffer from(all_.memory, turn.count * (gives_all ? all : 1) * 4, "given");
  watched_buffer into(all_.memory, turn.count * (takes_all ? all : 1) * 4, "taken");
  const std::span<std::int32_t> in(reinterpret_cast<std::int32_t*>(from.bytes().data()),
                                   from.bytes().size() / 4);
  const std::span<std::int32_t> out(reinterpret_cast<std::int32_t*>(into.bytes().data()),
                                    into.bytes().size() / 4);
  for (std::size_t i = 0; i < in.size(); ++i) {
    in[i] = given(w.epoch(), number, w.rank(), i);
  }
  const mw::root root{turn.root};
  switch (turn.kind) {
    case mw::operation_kind::barrier:
      co_await w.barrier();
      co_return;
    case mw::operation_kind::broadcast:
      if (is_root) std::copy(in.begin(), in.end(), out.begin());
      co_await w.broadcast(out, root);
      break;
    case mw::operation_kind::reduce:
      co_await w.reduce(in, out, mw::sum, root);
      break;
    case mw::operation_kind::all_reduce:
      co_await w.all_reduce(in, out, mw::sum);
      break;
    case mw::operation_kind::gather:
      co_await w.gather(in, out, root);
      break;
    case mw::operation_kind::all_gather:
      co_await w.all_gather(in, out);
      break;
    case mw::operation_kind::scatter:
      co_await w.scatter(in, out, root);
      break;
    case mw::operation_kind::all_to_all:
      co_await w.all_to_all(in, out);
      break;
    default:
      co_await w.reduce_scatter(in, out, mw::sum);
  }
  check(w, number, turn, out);
}

void paged_scenario::check(const mw::world& w, std::uint64_t number,
                           const paged_turn& turn, std::span<const std::int32_t> out) {
  const bool is_root = turn.root == w.rank();
  const auto self = static_cast<std::size_t>(w.rank());
  const auto value = [&](mw::rank_t from, std::size_t at) {
    return given(w.epoch(), number, from, at);
  };
  const auto sum = [&](std::size_t at) {
    std::int32_t total = 0;
    for (mw::rank_t r = 0; r < size_; ++r) total += value(r, at);
    return total;
  };
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::int32_t expected = out[i];
    switch (turn.kind) {
      case mw::operation_kind::broadcast:
        expected = value(turn.root, i);
        break;
      case mw::operation_kind::reduce:
        if (is_root) expected = sum(i);
        break;
      case mw::operation_kind::all_reduce:
        expected = sum(i);
        break;
      case mw::operation_kind::gather:
        if (!is_root) break;
        [[fallthrough]];
      case mw::operation_kind::all_gather:
        expected = value(static_cast<mw::rank_t>(i / turn.count), i % turn.count);
        break;
      case mw::operation_kind::scatter:
        expected = value(turn.root, self * turn.count + i);
        break;
      case mw::operation_kind::all_to_all:
        expected = value(static_cast<mw::rank_t>(i / turn.count),
                         self * turn.count + i % turn.count);
        break;
      default:
        expected = sum(self * turn.count + i);
    }
    if (out[i] == expected) continue;
    return all_.story.complain(fmt::format(
        "law 1: {} {} of epoch {} gave rank {} {} at {} and not {}",
        mw::name_of(turn.kind), number, w.epoch(), w.rank(), out[i], i, expected));
  }
}

bool paged_scenario::leaves_now(const mw::world& w) {
  if (!must_leave_ || static_cast<std::size_t>(w.rank()) != victim_) return false;
  left_in_ = w.epoch();
  return true;
}

mw::task<void> paged_scenario::work(mw::world& w) {
  all_.watch(w);
  for (std::uint64_t number = 1; number <= collectives_to_do; ++number) {
    if (pick(12) == 0) co_await mw::sleep_for(std::chrono::microseconds(pick(400)));
    if (leaves_now(w)) co_return;
    co_await take_turn(w, number);
  }
  done_[static_cast<std::size_t>(w.rank())] = w.epoch();
  while (!is_over_) {
    co_await mw::sleep_for(1ms);
    if (leaves_now(w)) co_return;
    // Throws what has broken it; the others may have left, and are waited for again.
    if (w.state() != mw::world_state::up || left_in_ == w.epoch()) co_await w.barrier();
  }
}

mw::task<void> paged_scenario::live(member_process& self, mw::rank_t rank) {
  auto body = [this, &self](mw::world& w) -> mw::task<void> {
    self.worlds["paged"] = &w;
    const bool was_calm = !trouble_has_begun_;
    std::string why;
    try {
      co_await work(w);
    } catch (const mw::world_error& e) {
      why = e.what();
      self.worlds.erase("paged");
      if (was_calm && !trouble_has_begun_ && !is_over_) {
        all_.story.complain("law 2: without any trouble: " + why);
      }
      throw;
    }
    self.worlds.erase("paged");
  };
  mw::world_options options;
  options.name = "paged";
  options.rank = rank;
  options.size = size_;
  options.collective_break = 20s;
  try {
    do {
      co_await mw::keep(self.runtime(), *self.rendezvous, options, body,
                        mw::after_close::form_again);
      if (must_leave_ && static_cast<std::size_t>(rank) == victim_) must_leave_ = false;
    } while (!is_over_ && !self.runtime().is_stopping());
  } catch (const std::exception& e) {
    all_.story.complain("law 1: keep threw: " + std::string(e.what()));
  }
}

void paged_scenario::at_the_step() {
  trouble_has_begun_ = true;
  member_process& victim = all_.at(victim_);
  switch (kind_) {
    case trouble::kill: {
      all_.kill(victim);
      member_process& after = all_.add("successor", victim);
      done_[victim_] = 0;
      join(after, static_cast<mw::rank_t>(victim_));
      break;
    }
    case trouble::pause:
      all_.stop(victim, all_.sim.random().at_most(2s));
      break;
    case trouble::stop:
      all_.stop(victim, 9s);
      break;
    case trouble::fail:
      all_.fail_world("paged");
      break;
    case trouble::leave:
      must_leave_ = true;
      break;
    default:
      break;
  }
  trouble_is_over_ = true;
}

seed_report paged_scenario::run() {
  size_ = static_cast<mw::rank_t>(2 + mixed(seed_) % 3);
  kind_ = static_cast<trouble>(seed_ % static_cast<std::uint64_t>(trouble::kinds));
  victim_ =
      static_cast<std::size_t>(mixed(seed_ + 1) % static_cast<std::uint64_t>(size_));
  return course(1 + mixed(seed_ + 2) % steps_until_trouble);
}

seed_report paged_scenario::run_with_kill(std::uint64_t step) {
  size_ = 3;
  kind_ = trouble::kill;
  victim_ = static_cast<std::size_t>(step % 3);
  return course(step);
}

seed_report paged_scenario::course(std::uint64_t step) {
  done_.resize(static_cast<std::size_t>(size_));
  for (mw::rank_t r = 0; r < size_; ++r) {
    const bool is_alone = where_ == placement::apart || r == 0;
    const std::string name = fmt::format("p{}", r);
    member_process& m = is_alone ? all_.add(name) : all_.add(name, all_.at(0));
    join(m, r);
  }
  if (kind_ == trouble::none) {
    trouble_is_over_ = true;
  } else {
    all_.sim.at_step(step, [this] { at_the_step(); });
  }
  if (!all_.run_until([this] { return all_are_done(); }, 90s)) {
    std::string text = "law 9: not all members have done all collectives:";
    for (const std::uint64_t epoch : done_) text += fmt::format(" {}", epoch);
    all_.story.complain(text);
  }
  is_over_ = true;
  all_.run_for(2s);
  return finished(all_);
}

}  // namespace

seed_report run_paged_seed(std::uint64_t seed, std::size_t lines, placement where) {
  return paged_scenario(seed, lines, where).run();
}

seed_report run_paged_kill(std::uint64_t step, std::size_t lines, placement where) {
  // One course for all steps.
  return paged_scenario(1, lines, where).run_with_kill(step);
}

}  // namespace manyworlds_tests
