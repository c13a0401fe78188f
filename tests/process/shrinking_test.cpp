// Survivors in real processes: they shrink their world, with the store dead, and grow it
// again. The scenarios are those of ULFM's tests.
#include <map>
#include <sstream>

#include "process_fixture.hpp"
#include "support/entries.hpp"
#include "support/eventually.hpp"

namespace manyworlds::process_tests {

TEST_SUITE_BEGIN("process");

namespace {

constexpr rank_t four = 4;

/// Where a member says that it is, after a repair.
struct place {
  std::uint64_t epoch = 0;
  rank_t rank = no_rank;
  rank_t size = 0;
  std::string previous;
};

place place_of(const std::string& line) {
  place p;
  std::string word;
  std::istringstream(line) >> word >> word >> p.epoch >> p.rank >> p.size >> p.previous;
  return p;
}

/// One world of members that are all processes of their own, by their first rank.
class crew {
 public:
  explicit crew(const site& s, std::vector<std::string> settings = {}, rank_t size = four)
      : site_(s), settings_(std::move(settings)), size_(size) {
    for (rank_t r = 0; r < size; ++r) join(r);
    for (rank_t r = 0; r < size; ++r) at(r).expect("formed crew");
  }
  void join(rank_t rank) {
    members_.erase(rank);
    members_.emplace(rank, site_.member(settings_));
    at(rank).order("world crew " + std::to_string(rank) + " " + std::to_string(size_));
  }
  [[nodiscard]] process& at(rank_t rank) { return members_.at(rank); }
  void kill(rank_t rank) {
    at(rank).send_kill();
    members_.erase(rank);
  }
  [[nodiscard]] std::vector<rank_t> ranks() const {
    std::vector<rank_t> all;
    for (const auto& [r, p] : members_) all.push_back(r);
    return all;
  }
  void order_all(const std::string& line) {
    for (auto& [r, p] : members_) p.order(line);
  }
  void expect_all(const std::string& beginning) {
    for (auto& [r, p] : members_) p.expect(beginning);
  }
  /// All are in one world, in the order of their ranks, and can use it.
  place expect_together(const std::string& previous) {
    place first;
    rank_t expected = 0;
    for (auto& [rank, p] : members_) {
      const place here = place_of(p.expect("again crew"));
      const rank_t r = rank;
      CAPTURE(r);
      if (expected == 0) first = here;
      CHECK(here.epoch == first.epoch);
      CHECK(here.rank == expected++);
      CHECK(here.size == static_cast<rank_t>(members_.size()));
      CHECK(here.previous == previous);
    }
    order_all("barrier crew");
    expect_all("passed crew");
    return first;
  }

 private:
  const site& site_;
  std::vector<std::string> settings_;
  rank_t size_;
  std::map<rank_t, process> members_;
};

double milliseconds(clock::duration d) {
  return std::chrono::duration<double, std::milli>(d).count();
}

struct held_now {
  std::size_t descriptors = testing::open_descriptors();
  std::size_t threads = testing::entries("/proc/self/task");
};

}  // namespace

TEST_CASE("whichever of four is killed, the others shrink and go on") {
  const std::map<rank_t, std::string> left{{0, "1,2,3"}, {1, "0,2,3"}, {3, "0,1,2"}};
  for (const engine_kind e : engines()) {
    for (const auto& [killed_one, previous] : left) {
      const rank_t victim = killed_one;
      CAPTURE(name_of(e));
      CAPTURE(victim);
      site here(e);
      crew all(here);
      const auto killed = clock::now();
      all.kill(victim);
      all.expect_all("over crew peer_died " + std::to_string(victim));
      const auto noticed = clock::now();
      all.order_all("shrink crew");
      const place found = all.expect_together(previous);
      CHECK(found.epoch > 1);
      MESSAGE("rank " << victim << " killed: " << milliseconds(noticed - killed)
                      << " ms to the last error, and "
                      << milliseconds(clock::now() - noticed)
                      << " ms to a barrier in the shrunk world");
    }
  }
}

TEST_CASE("two are killed at once, and the store with them") {
  for (const engine_kind e : engines()) {
    CAPTURE(name_of(e));
    site here(e);
    crew all(here);
    here.store.kill();
    all.kill(0);
    all.kill(2);
    all.expect_all("over crew");
    all.order_all("shrink crew");
    all.expect_together("1,3");
    // And once more: a second shrink, to one.
    all.kill(1);
    all.expect_all("over crew peer_died 0");
    all.order_all("shrink crew");
    all.expect_together("1");
  }
}

TEST_CASE("the coordinator dies at any moment of the shrinking; the others go on") {
  site here(engine_kind::epoll);
  constexpr int moments = 24;
  for (int moment = 0; moment < moments; ++moment) {
    CAPTURE(moment);
    crew all(here);
    all.kill(3);
    all.expect_all("over crew");
    all.order_all("shrink crew");
    const auto until = clock::now() + moment * 100us;
    while (clock::now() < until) continue;
    all.kill(0);
    // With it, and broken at once, or without it; the one that is back first calls again,
    // or the other would wait for its call.
    std::map<rank_t, place> last;
    const auto limit = clock::now() + 20s;
    while ((last[1].size != 2 || last[2].size != 2) && clock::now() < limit) {
      for (const rank_t r : {1, 2}) {
        if (last[r].size == 2 || !all.at(r).has_said("again crew")) continue;
        last[r] = place_of(all.at(r).expect("again crew"));
        CHECK(last[r].rank == r + last[r].size - 3);
        if (last[r].size == 2) continue;
        all.at(r).expect("over crew peer_died 0");
        all.at(r).order("shrink crew");
      }
    }
    CHECK(last[1].size == 2);
    CHECK(last[1].epoch == last[2].epoch);
    all.order_all("barrier crew");
    all.expect_all("passed crew");
  }
}

TEST_CASE(
    "B12: a stopped member is left out, is told so when it goes on, and harms none") {
  for (const engine_kind e : engines()) {
    CAPTURE(name_of(e));
    site here(e);
    crew all(here, {"suspect=300", "broken=1000"});
    all.at(0).order("drain crew 1 65536 1000000");
    all.at(1).order("stream crew 0 65536 1000000");
    all.at(1).stop();
    for (const rank_t r : {0, 2, 3}) {
      all.at(r).expect("over crew silent_peer 1");
      all.at(r).order("shrink crew");
    }
    std::uint64_t epoch = 0;
    for (const rank_t r : {0, 2, 3}) {
      const place p = place_of(all.at(r).expect("again crew"));
      CHECK(p.size == 3);
      CHECK(p.previous == "0,2,3");
      if (epoch != 0) CHECK(p.epoch == epoch);
      epoch = p.epoch;
    }
    all.at(1).go_on();
    all.at(1).expect("over crew");
    all.at(1).order("shrink crew");
    all.at(1).expect("error crew expelled");
    for (const rank_t r : {0, 2, 3}) all.at(r).order("barrier crew");
    for (const rank_t r : {0, 2, 3}) all.at(r).expect("passed crew");
    for (const rank_t r : {0, 2, 3}) CHECK_FALSE(all.at(r).has_said("over crew"));
  }
}

TEST_CASE("who lives and does not call is left out; all grow again with their ranks") {
  site here(engine_kind::epoll);
  crew all(here, {"form=6000"});
  all.kill(0);
  all.expect_all("over crew");
  for (const rank_t r : {1, 2}) all.at(r).order("shrink crew");
  for (const rank_t r : {1, 2}) {
    const place p = place_of(all.at(r).expect("again crew"));
    CHECK(p.size == 2);
    CHECK(p.previous == "1,2");
  }
  all.at(3).order("shrink crew");
  all.at(3).expect("error crew expelled");
  // The store has the rest of it: a fresh process for rank 0, and who was late for its
  // own.
  all.join(0);
  all.at(1).order("grow crew");
  all.at(2).order("grow crew");
  all.at(3).order("reform crew");
  all.at(0).expect("formed crew");
  for (const rank_t r : {1, 2, 3}) {
    const place p = place_of(all.at(r).expect("again crew"));
    CHECK(p.rank == r);
    CHECK(p.size == four);
  }
  all.order_all("barrier crew");
  all.expect_all("passed crew");
}

TEST_CASE(
    "a replacement that races with the reform of all others gets the rank of the dead") {
  for (const engine_kind e : engines()) {
    CAPTURE(name_of(e));
    site here(e);
    crew all(here);
    for (const rank_t victim : {0, 3, 1, 0, 2}) {
      CAPTURE(victim);
      all.kill(victim);
      const auto survivors = all.ranks();
      // It joins while some have not noticed yet, and some form already.
      all.at(survivors[0]).order("reform crew");
      all.join(victim);
      all.at(survivors[1]).order("reform crew");
      all.at(survivors[2]).order("reform crew");
      all.at(victim).expect("formed crew");
      for (const rank_t r : survivors) {
        const place p = place_of(all.at(r).expect("again crew"));
        CHECK(p.rank == r);
        CHECK(p.size == four);
      }
      all.order_all("barrier crew");
      all.expect_all("passed crew");
    }
  }
}

TEST_CASE("a world shrinks and grows a hundred times, and nothing grows with it") {
  site here(engine_kind::epoll);
  leader us(here);
  process worker = here.worker("breathing");
  world w = us.form("breathing");
  held_now warm;
  std::uint64_t epoch = 0;
  for (int i = 1; i <= 100; ++i) {
    worker.kill();
    CHECK(us.broken(w).cause == cause::peer_died);
    w = us.run(w.shrink());
    CHECK(w.size() == 1);
    CHECK(w.epoch() > epoch);
    worker = here.worker("breathing");
    w = us.run(w.grow());
    CHECK(w.size() == 2);
    epoch = w.epoch();
    worker.order("echo breathing 0 64");
    us.run(ping(w, 1, 3));
    if (i == 20) warm = held_now();
  }
  held_now now;
  CHECK(testing::eventually([&] {
    now = held_now();
    return now.descriptors <= warm.descriptors;
  }));
  CHECK(now.threads <= warm.threads);
}

TEST_SUITE_END();

}  // namespace manyworlds::process_tests
