#include "manyworlds/observe/turn_times.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "io/reactor_fixture.hpp"

using namespace manyworlds;
using namespace manyworlds::testing;

TEST_SUITE_BEGIN("turn_times");

namespace {

/// An engine with a clock that goes on only when it is told to. A poll takes time.
class slow_clock final : public engine {
 public:
  [[nodiscard]] std::string_view name() const noexcept override { return "slow clock"; }
  [[nodiscard]] network& sockets() noexcept override { return real_->sockets(); }
  [[nodiscard]] time_point now() const noexcept override {
    ++looks;
    return now_;
  }
  void submit(io_request&) noexcept override {}
  void cancel(io_request&) noexcept override {}
  bool poll() noexcept override {
    pass(polling);
    return polling > duration::zero();
  }
  void wait(std::optional<time_point> until) noexcept override {
    if (until) now_ = std::max(now_, *until);
  }
  void wake() noexcept override {}
  [[nodiscard]] int descriptor() noexcept override { return -1; }
  [[nodiscard]] bool prepare_foreign_wait() noexcept override { return false; }

  void pass(duration d) noexcept { now_ += d; }

  duration polling{0};
  mutable int looks = 0;

 private:
  std::unique_ptr<engine> real_ = make_engine(engine_kind::epoll).engine;
  time_point now_{1h};
};

/// An engine to which nothing comes, with a clock that goes on when it is looked at.
class silent_engine final : public engine {
 public:
  [[nodiscard]] std::string_view name() const noexcept override { return "silent"; }
  [[nodiscard]] network& sockets() noexcept override { return real_->sockets(); }
  [[nodiscard]] time_point now() const noexcept override { return now_ += 100ns; }
  void submit(io_request&) noexcept override {}
  void cancel(io_request&) noexcept override {}
  bool poll() noexcept override {
    ++polls;
    return false;
  }
  void wait(std::optional<time_point>) noexcept override {}
  void wake() noexcept override {}
  [[nodiscard]] int descriptor() noexcept override { return -1; }
  [[nodiscard]] bool prepare_foreign_wait() noexcept override { return false; }

  void pass(duration d) noexcept { now_ += d; }

  int polls = 0;

 private:
  std::unique_ptr<engine> real_ = make_engine(engine_kind::epoll).engine;
  mutable time_point now_{1h};
};

struct step : work {
  step(slow_clock& c, duration d, work_kind kind = work_kind::library)
      : work(
            [](work& w) noexcept {
              auto& self = static_cast<step&>(w);
              self.clock.pass(self.takes);
            },
            kind),
        clock(c),
        takes(d) {}
  slow_clock& clock;
  duration takes;
};

/// Finds something once, for half a microsecond, and wakes who waits for that.
class finder final : public poller {
 public:
  finder(reactor& r, slow_clock& c, work_kind looks, work& waiter)
      : poller(looks), r_(r), clock_(c), waiter_(&waiter) {
    r_.add(*this);
  }
  ~finder() { r_.remove(*this); }
  bool poll() noexcept override {
    if (!waiter_) return false;
    clock_.pass(500ns);
    r_.schedule(*std::exchange(waiter_, nullptr));
    return true;
  }
  bool prepare_sleep(std::optional<duration>&) noexcept override { return true; }
  void cancel_sleep() noexcept override {}

 private:
  reactor& r_;
  slow_clock& clock_;
  work* waiter_;
};

/// Finds nothing, however often it is looked at.
struct resting final : poller {
  bool poll() noexcept override {
    ++looks;
    return false;
  }
  bool prepare_sleep(std::optional<duration>&) noexcept override { return true; }
  void cancel_sleep() noexcept override {}
  int looks = 0;
};

struct timed_reactor {
  timed_reactor() : timed_reactor(std::make_unique<slow_clock>()) {}
  explicit timed_reactor(std::unique_ptr<slow_clock> c)
      : clock(*c), r(std::move(c), reactor_options{duration::zero()}) {}
  slow_clock& clock;
  reactor r;
};

}  // namespace

TEST_CASE("a histogram doubles from a microsecond on, and has room for everything") {
  CHECK(time_histogram::bucket_of(999ns) == 0);
  CHECK(time_histogram::bucket_of(1us) == 1);
  CHECK(time_histogram::bucket_of(3us) == 2);
  CHECK(time_histogram::bucket_of(4us) == 3);
  CHECK(time_histogram::bucket_of(65'535us) == 16);
  CHECK(time_histogram::bucket_of(65'536us) == 17);
  CHECK(time_histogram::bucket_of(1h) == 17);
  for (std::size_t b = 0; b < time_histogram::buckets; ++b) {
    CHECK(time_histogram::bucket_of(time_histogram::begin_of(b)) == b);
  }
}

TEST_CASE(
    "laws 2 and 9: after a long turn a reactor looks at each poller, rested or not") {
  timed_reactor t;
  std::vector<resting> links(32);
  for (resting& l : links) t.r.add(l);
  for (int n = 0; n < 5000; ++n) t.r.turn();
  const auto looks_of_next = [&] {
    int before = 0;
    int after = 0;
    for (const resting& l : links) before += l.looks;
    t.r.turn();
    for (const resting& l : links) after += l.looks;
    return after - before;
  };
  CHECK(looks_of_next() < 32);
  step computes(t.clock, 100us);
  t.r.schedule(computes);
  looks_of_next();
  CHECK(looks_of_next() == 32);
  CHECK(looks_of_next() < 32);
  for (resting& l : links) t.r.remove(l);
}

TEST_CASE("a quantile is the end of its bucket, and no more than the longest") {
  time_histogram h;
  CHECK(h.quantile(0.5) == 0us);
  h.counts[3] = 98;
  h.counts[5] = 2;
  h.longest = 17us;
  CHECK(h.count() == 100);
  CHECK(h.quantile(0.5) == 8us);
  CHECK(h.quantile(0.98) == 8us);
  CHECK(h.quantile(0.99) == 17us);
  CHECK(h.quantile(1) == 17us);
}

TEST_CASE(
    "a task that blocks its thread is seen among tasks, not in the library's part") {
  timed_reactor t;
  step ten_seconds(t.clock, 10s, work_kind::tasks);
  t.r.schedule(ten_seconds);
  CHECK(t.r.turn());
  CHECK(t.r.times().tasks.longest == 10s);
  CHECK(t.r.times().library.longest < 1ms);
}

TEST_CASE("a turn in which tasks and the library take turns counts once in each part") {
  timed_reactor t;
  step a(t.clock, 40us);
  step b(t.clock, 3ms, work_kind::tasks);
  step c(t.clock, 10us);
  for (step* s : {&a, &b, &c}) t.r.schedule(*s);
  t.clock.polling = 30us;
  CHECK(t.r.turn());
  const turn_times times = t.r.times();
  CHECK(times.library.count() == 1);
  CHECK(times.library.longest == 80us);
  CHECK(times.tasks.count() == 1);
  CHECK(times.tasks.longest == 3ms);
}

TEST_CASE("when the library has had its share of a turn, the rest of its work waits") {
  timed_reactor t;
  step a(t.clock, 40us);
  step b(t.clock, 3ms, work_kind::tasks);
  step c(t.clock, 40us);
  step d(t.clock, 40us);
  for (step* s : {&a, &b, &c, &d}) t.r.schedule(*s);
  CHECK(t.r.turn());
  CHECK(t.r.times().library.longest == 80us);
  CHECK(t.r.turn());
  CHECK_FALSE(t.r.turn());
  CHECK(t.r.times().library.count() == 2);
  CHECK(t.r.times().library.longest == 80us);
}

TEST_CASE("turns that do nothing, sleep, and what lies between turns are not counted") {
  timed_reactor t;
  step s(t.clock, 5us);
  t.r.schedule(s);
  CHECK(t.r.turn());
  t.clock.pass(1h);
  CHECK_FALSE(t.r.turn());
  t.clock.pass(1h);
  t.r.wait();
  t.r.schedule(s);
  CHECK(t.r.turn());
  t.clock.pass(1h);
  CHECK(t.r.times().library.count() == 2);
  CHECK(t.r.times().library.longest == 5us);
  CHECK(t.r.times().tasks.count() == 0);
}

TEST_CASE("each turn that did something is counted, also the last of a run") {
  timed_reactor t;
  int turns_left = 5;
  step s(t.clock, 2us);
  t.r.run_until([&] {
    if (turns_left-- == 0) return true;
    t.r.schedule(s);
    return false;
  });
  CHECK(t.r.times().library.count() == 5);
  CHECK(t.r.times().library.counts[2] == 5);
  CHECK(t.r.turns() == 5);
}

TEST_CASE("a brief look that resumes a task is the task's, a longer one the library's") {
  for (const bool is_brief : {true, false}) {
    CAPTURE(is_brief);
    auto made = std::make_unique<slow_clock>();
    slow_clock& clock = *made;
    reactor r(std::move(made), reactor_options{1s});
    r.turn();
    step resumed(clock, 2us, work_kind::tasks);
    finder f(r, clock, is_brief ? work_kind::brief : work_kind::library, resumed);
    const int looks = clock.looks;
    // While it spins it finds something, and what that resumes runs at once.
    r.wait();
    // Two are where a rest begins and where it ends.
    CHECK((clock.looks == looks + 2) == is_brief);
    const turn_times times = r.times();
    CHECK(times.tasks.count() == 1);
    CHECK(times.tasks.longest == (is_brief ? 2500ns : 2us));
    CHECK(times.library.count() == (is_brief ? 0 : 1));
  }
}

TEST_CASE("what is done in a rest is a turn, and what lies before and after it is not") {
  auto made = std::make_unique<slow_clock>();
  slow_clock& clock = *made;
  reactor r(std::move(made), reactor_options{1s});
  step resumed(clock, 2us, work_kind::tasks);
  r.turn();
  clock.pass(1h);
  finder f(r, clock, work_kind::brief, resumed);
  r.wait();
  CHECK(r.times().tasks.count() == 1);
  clock.pass(1h);
  r.turn();
  clock.pass(1h);
  r.schedule(resumed);
  r.wait();
  clock.pass(1h);
  r.turn();
  CHECK(r.times().tasks.count() == 2);
  CHECK(r.times().tasks.longest == 2500ns);
  CHECK(r.times().library.count() == 0);
}

TEST_CASE("what waits for the next turn lets this one end") {
  timed_reactor t;
  struct slices final : work {
    slices(timed_reactor& owner, int n)
        : work([](work& w) noexcept {
            auto& self = static_cast<slices&>(w);
            self.t.clock.pass(100us);
            if (--self.left > 0) self.t.r.schedule_next_turn(self);
          }),
          t(owner),
          left(n) {}
    timed_reactor& t;
    int left;
  } copying(t, 10);
  t.r.schedule(copying);
  t.r.run_until([&] { return copying.left == 0; });
  CHECK(t.r.times().library.count() == 10);
  CHECK(t.r.times().library.longest == 100us);
}

TEST_CASE("after a message that was expected and did not come no spin waits for 10 ms") {
  auto made = std::make_unique<silent_engine>();
  silent_engine& silent = *made;
  constexpr reactor_options attentive{.spin = duration::zero(), .attention = 50us};
  reactor r(std::move(made), attentive);
  const auto polls_of_wait = [&] {
    r.expect_soon();
    const int before = silent.polls;
    r.wait();
    return silent.polls - before;
  };
  CHECK(polls_of_wait() > 20);
  CHECK(polls_of_wait() < 5);
  silent.pass(11ms);
  CHECK(polls_of_wait() > 20);
}

TEST_SUITE_END();
