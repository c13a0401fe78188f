// Members that disagree on the root of one collective, each at its own pace.
#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/world/outcome.hpp"
#include "simulation/scenario.hpp"
#include "simulation/world_cluster.hpp"

namespace manyworlds_tests {

namespace {

/// One member of the world, and what came of it.
struct disagreeing_member {
  mw::rank_t root = 0;
  mw::duration late{0};
  bool was_up = false;
  bool leaves = false;
  mw::failure failed;  ///< its collective
  mw::failure ended;   ///< its world
};

class disagreeing_scenario {
 public:
  disagreeing_scenario(std::uint64_t seed, std::size_t lines, placement where)
      : all_(seed, network(where)), seed_(seed), where_(where) {
    all_.lines_kept = lines;
  }

  seed_report run() {
    constexpr mw::operation_kind kinds[] = {
        mw::operation_kind::broadcast, mw::operation_kind::reduce,
        mw::operation_kind::gather, mw::operation_kind::scatter};
    kind_ = kinds[seed_ % 4];
    size_ = static_cast<mw::rank_t>(2 + below(3));
    count_ = below(3) == 0 ? 40'000 : 2;
    agreed_ = below(4);
    // Enough for pages to carry what they disagree on.
    if (where_ == placement::together && below(2) == 0) agreed_ += 24;
    members_.resize(static_cast<std::size_t>(size_));
    do {
      for (disagreeing_member& m : members_) m.root = rank_below(size_);
    } while (all_agree());
    for (disagreeing_member& m : members_) {
      m.late = std::chrono::microseconds(below(2) == 0 ? 0 : below(20'000));
    }
    if (below(4) == 0) members_[below(members_.size())].leaves = true;
    for (mw::rank_t r = 0; r < size_; ++r) {
      const bool is_alone = where_ == placement::apart || r == 0;
      const std::string name = fmt::format("p{}", r);
      member_process& p = is_alone ? all_.add(name) : all_.add(name, all_.at(0));
      p.start(live(p, r));
    }
    all_.run_for(5s);
    for (mw::rank_t r = 0; r < size_; ++r) judge(r);
    return finished(all_);
  }

 private:
  static mw::simulation_options network(placement where) {
    mw::simulation_options o;
    o.shared_memory = where == placement::together;
    return o;
  }
  [[nodiscard]] std::uint64_t below(std::uint64_t n) {
    return all_.sim.random().below(n);
  }
  [[nodiscard]] mw::rank_t rank_below(mw::rank_t n) {
    return static_cast<mw::rank_t>(below(static_cast<std::uint64_t>(n)));
  }
  [[nodiscard]] disagreeing_member& at(mw::rank_t r) {
    return members_[static_cast<std::size_t>(r)];
  }
  [[nodiscard]] bool all_agree() const {
    return std::all_of(members_.begin(), members_.end(),
                       [&](const auto& m) { return m.root == members_.front().root; });
  }

  mw::task<mw::failure> enter(mw::world& w, mw::rank_t root, std::size_t count) {
    const auto size = static_cast<std::size_t>(size_);
    std::vector<std::int32_t> one(count, w.rank());
    std::vector<std::int32_t> all(w.rank() == root ? count * size : 0);
    switch (kind_) {
      case mw::operation_kind::broadcast:
        co_return (co_await mw::outcome(w.broadcast(one, mw::root{root}))).error();
      case mw::operation_kind::reduce:
        co_return (co_await mw::outcome(w.reduce(one, mw::sum, mw::root{root}))).error();
      case mw::operation_kind::gather:
        co_return (co_await mw::outcome(w.gather(one, all, mw::root{root}))).error();
      default:
        co_return (co_await mw::outcome(w.scatter(all, one, mw::root{root}))).error();
    }
  }

  mw::task<void> live(member_process& self, mw::rank_t rank) {
    disagreeing_member& m = at(rank);
    mw::world w(self.runtime(), *self.rendezvous,
                {.name = "roots", .rank = rank, .size = size_});
    if (!co_await mw::outcome(w)) co_return;
    m.was_up = true;
    for (std::uint64_t i = 0; i < agreed_; ++i) {
      const mw::failure f =
          co_await enter(w, static_cast<mw::rank_t>(i) % size_, i % 2 == 0 ? 3 : 9'000);
      // What they agreed on may be broken off by what another member does next.
      if (f && f.cause != mw::cause::mismatch && f.cause != mw::cause::closed) {
        all_.story.complain("law 1: an agreed collective failed: " + f.text());
      }
    }
    co_await mw::sleep_for(m.late);
    m.failed = co_await enter(w, m.root, count_);
    if (m.leaves) {
      auto leaving = w.leave();
      (void)co_await mw::outcome(std::move(leaving));
      co_return;
    }
    m.ended = co_await w.broken();
  }

  [[nodiscard]] std::string course() const {
    std::string text(mw::name_of(kind_));
    for (const disagreeing_member& m : members_) {
      text += fmt::format(", root {} after {} us{}{}", m.root, m.late / 1us,
                          m.leaves ? ", leaves" : "",
                          m.failed ? ", failed: " + m.failed.text() : "");
    }
    return text;
  }

  // None goes on as if all were well: it learns that they disagree, or, where one has
  // left meanwhile, perhaps only that.
  void judge(mw::rank_t r) {
    const disagreeing_member& m = at(r);
    // Where the others broke it before it was up here, this member goes on forming.
    if (m.leaves || !m.was_up) return;
    const bool one_leaves = std::any_of(members_.begin(), members_.end(),
                                        [](const auto& each) { return each.leaves; });
    if (one_leaves && size_ > 2 && m.failed.cause == mw::cause::closed) return;
    // Its own part had ended, and then the world or its collectives: only the log tells.
    if (one_leaves && !m.failed && (!m.ended || m.ended.cause == mw::cause::closed))
      return;
    const mw::failure& f = m.failed.cause == mw::cause::mismatch ? m.failed : m.ended;
    if (!f) {
      all_.story.complain(
          fmt::format("rank {} does not know that they disagree: {}", r, course()));
      return;
    }
    const std::string text = f.text();
    const bool says_both = text.find("(root ") != text.rfind("(root ");
    if (f.cause == mw::cause::mismatch && says_both) return;
    all_.story.complain(fmt::format("rank {} is told something else: {}", r, text));
  }

  cluster all_;
  std::uint64_t seed_;
  placement where_;
  mw::operation_kind kind_ = mw::operation_kind::none;
  mw::rank_t size_ = 0;
  std::size_t count_ = 0;
  std::uint64_t agreed_ = 0;
  std::vector<disagreeing_member> members_;
};

}  // namespace

seed_report run_disagreeing_seed(std::uint64_t seed, std::size_t lines, placement where) {
  disagreeing_scenario scenario(seed, lines, where);
  return scenario.run();
}

}  // namespace manyworlds_tests
