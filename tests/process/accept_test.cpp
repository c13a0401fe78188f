// Elastic workers: processes that come, die, stop and come again, and no other process
// notices.
#include <atomic>
#include <deque>
#include <map>
#include <sstream>

#include "process_fixture.hpp"
#include "service_orders.hpp"
#include "support/entries.hpp"
#include "support/eventually.hpp"

namespace manyworlds::process_tests {

TEST_SUITE_BEGIN("process");

namespace {

/// A front that accepts workers and asks each one word after the other.
class front {
 public:
  explicit front(const site& s, world_options o = {}, duration heartbeat = 200ms)
      : us(s, heartbeat),
        accepted_(us.rt.start(accept(
            us.rt, us.store, {.service = "decode", .world = o},
            [this](world& w) { return ask(w); }, enough_.get_token()))) {}

  /// Orderly: the workers are left.
  void end() {
    is_over = true;
    enough_.request_stop();
    us.finish(accepted_);
  }
  /// In its latest world.
  [[nodiscard]] std::uint64_t answers_of(std::int64_t pid) {
    const std::lock_guard lock(mutex_);
    return answers_[pid];
  }
  [[nodiscard]] cause end_of(std::int64_t pid) {
    const std::lock_guard lock(mutex_);
    return ends_.count(pid) ? ends_[pid] : cause::none;
  }
  [[nodiscard]] duration longest_gap(std::int64_t pid) {
    const std::lock_guard lock(mutex_);
    return gaps_[pid];
  }

  leader us;
  std::atomic<bool> is_over{false};

 private:
  task<void> ask(world& w) {
    const std::int64_t pid = w.view().member(1).identity.pid;
    {
      const std::lock_guard lock(mutex_);
      answers_[pid] = 0;
      gaps_[pid] = duration::zero();
      ends_.erase(pid);
    }
    failure failed;
    auto last = clock::now();
    for (std::uint64_t n = 0; !is_over && !failed; ++n) {
      failed = (co_await outcome(check_echo(w, n))).error();
      const auto now = clock::now();
      const std::lock_guard lock(mutex_);
      if (failed) {
        ends_[pid] = failed.cause;
      } else {
        ++answers_[pid];
        gaps_[pid] = std::max<duration>(gaps_[pid], now - last);
      }
      last = now;
    }
    if (failed) throw world_error(failed);
  }

  std::mutex mutex_;
  std::map<std::int64_t, std::uint64_t> answers_;
  std::map<std::int64_t, cause> ends_;
  std::map<std::int64_t, duration> gaps_;
  std::stop_source enough_;
  started<void> accepted_;
};

/// What a process holds of the kernel.
struct held {
  std::size_t descriptors = testing::open_descriptors();
  std::size_t threads = testing::entries("/proc/self/task");

  /// But for what one world that is just being left may hold.
  [[nodiscard]] bool is_no_more_than(const held& before) const {
    return descriptors <= before.descriptors + 4 && threads <= before.threads;
  }
};
held read_held(const std::string& came) {
  std::istringstream in(came);
  std::string word;
  held h;
  in >> word >> word >> h.descriptors >> h.threads;
  return h;
}

template <class Condition>
void wait_until(Condition&& c) {
  REQUIRE(testing::eventually(std::forward<Condition>(c), 20s));
}

process connecting(const site& here, std::vector<std::string> settings = {}) {
  process p = here.member(std::move(settings));
  p.order("connect decode");
  return p;
}

}  // namespace

TEST_CASE(
    "A9: a killed worker ends only its own world, and is let in when it comes again") {
  for (const engine_kind e : engines()) {
    CAPTURE(name_of(e));
    site here(e);
    process first = connecting(here);
    process second = connecting(here);
    front us(here);
    first.expect("connected decode");
    second.expect("connected decode");
    for (int i = 0; i < 3; ++i) {
      const pid_t pid = first.pid();
      wait_until([&] { return us.answers_of(pid) > 10; });
      first.kill();
      wait_until([&] { return us.end_of(pid) == cause::peer_died; });
      first = connecting(here);
      first.expect("connected decode");
    }
    const std::uint64_t so_far = us.answers_of(second.pid());
    wait_until([&] { return us.answers_of(second.pid()) > so_far + 100; });
    CHECK(us.end_of(second.pid()) == cause::none);
    CHECK(us.longest_gap(second.pid()) < no_stall);
    us.end();
    first.expect("lost decode closed");
    second.expect("lost decode closed");
    CHECK(!second.has_said("lost decode peer_died"));
    CHECK(second.end() == 0);
  }
}

TEST_CASE("a killed acceptor that comes again meets those who wait, and those who come") {
  for (const engine_kind e : engines()) {
    CAPTURE(name_of(e));
    site here(e);
    std::deque<process> workers;
    for (int i = 0; i < 3; ++i) workers.push_back(connecting(here));
    for (int i = 0; i < 3; ++i) {
      process boss = here.member();
      boss.order("accept decode");
      for (process& each : workers) {
        // The acceptor that is there now.
        const std::string line = each.expect("connected decode");
        CHECK(line.ends_with(" " + std::to_string(boss.pid())));
      }
      workers.push_back(connecting(here));
      workers.back().expect("connected decode");
      const std::string pid = std::to_string(boss.pid());
      boss.kill();
      for (process& each : workers) each.expect("lost decode peer_died " + pid);
    }
    for (process& each : workers) CHECK(each.end() == 0);
  }
}

TEST_CASE(
    "sixteen worker processes at once are each met by exactly one of two acceptors") {
  site here(engines().back());
  std::deque<process> workers;
  process first = here.member();
  process second = here.member();
  for (process* each : {&first, &second}) each->order("accept decode");
  for (int i = 0; i < 16; ++i) workers.push_back(connecting(here));
  std::map<std::string, int> met;
  for (process& each : workers) {
    const std::string line = each.expect("connected decode");
    ++met[line.substr(line.rfind(' '))];
    CHECK(!each.has_said("connected decode"));
  }
  CHECK(met[" " + std::to_string(first.pid())] +
            met[" " + std::to_string(second.pid())] ==
        16);
  for (process& each : workers) CHECK(each.end() == 0);
}

TEST_CASE(
    "B12: a stopped worker breaks its own world, and connects again when it goes on") {
  site here(engines().back());
  const world_options impatient{.suspect_after = 300ms, .broken_after = 1s};
  front us(here, impatient, 50ms);
  process stopped = connecting(here, {"heartbeat=50"});
  process well = connecting(here, {"heartbeat=50"});
  stopped.expect("connected decode");
  well.expect("connected decode");
  wait_until([&] { return us.answers_of(stopped.pid()) > 10; });
  stopped.stop();
  wait_until([&] { return us.end_of(stopped.pid()) == cause::silent_peer; });
  const std::uint64_t so_far = us.answers_of(well.pid());
  wait_until([&] { return us.answers_of(well.pid()) > so_far + 100; });
  CHECK(us.end_of(well.pid()) == cause::none);
  stopped.go_on();
  stopped.expect("lost decode");
  stopped.expect("connected decode");
  wait_until([&] { return us.answers_of(stopped.pid()) > 10; });
  us.end();
  CHECK(stopped.end() == 0);
  CHECK(well.end() == 0);
}

TEST_CASE(
    "B9, B15: 200 connects leave no descriptors, threads or keys behind, and a stream of "
    "requests beside them does not stall") {
  for (const engine_kind e : engines()) {
    CAPTURE(name_of(e));
    site here(e);
    front us(here);
    process steady = connecting(here);
    steady.expect("connected decode");
    process busy = here.member();
    busy.order("come_and_go decode 200");
    const held early = read_held(busy.expect("came decode", 60s));
    const held here_early;
    const held late = read_held(busy.expect("came decode", 60s));
    const held here_late;
    CHECK(late.is_no_more_than(early));
    CHECK(here_late.is_no_more_than(here_early));
    CHECK(us.end_of(steady.pid()) == cause::none);
    CHECK(us.longest_gap(steady.pid()) < no_stall);
    CHECK(us.us.run(us.us.store.num_keys()) <= 2);
    us.end();
    CHECK(us.us.run(us.us.store.num_keys()) == 0);
    CHECK(steady.end() == 0);
    CHECK(busy.end() == 0);
  }
}

TEST_SUITE_END();

}  // namespace manyworlds::process_tests
