// Dispatcher: stops, drains, deadlines and cancellations at once.
#include "dispatch_fixture.hpp"

namespace manyworlds::dispatch_tests {

TEST_SUITE_BEGIN("serve");

namespace {

struct asked {
  std::shared_ptr<story> told;
  std::string answer;
  std::stop_source gone;
  bool may_fail = false;
};

/// Three workers; each is stopped, or drained and replaced, while calls come and go.
class mixed_troubles {
 public:
  explicit mixed_troubles(std::uint64_t seed)
      : site_({.in_flight_per_worker = 4, .tries = 4, .patience = 30s, .window = 2000},
              seed) {
    for (const char* name : {"a", "b", "c"}) now_.push_back({&site_.add(name), {}, {}});
    site_.await_workers(3);
  }
  void run() {
    for (int i = 0; i < 400; ++i) {
      if (at_random(3) == 0) ask();
      if (at_random(60) == 0) stop(now_[at_random(3)]);
      if (at_random(60) == 0) drain(now_[at_random(3)]);
      if (at_random(20) == 0 && !calls_.empty())
        cancel(calls_[calls_.size() - 1 -
                      at_random(std::min<std::size_t>(calls_.size(), 8))]);
      site_.sim.run_for(duration(at_random(20'000'000)));
      for (place& p : now_) look_after(p);
    }
    check();
  }

 private:
  struct place {
    worker* at;
    std::optional<time_point> goes_on;
    std::shared_ptr<bool> is_drained;
  };

  std::size_t at_random(std::size_t below) { return site_.sim.random().below(below); }

  void ask() {
    asked a;
    std::string request;
    switch (at_random(4)) {
      case 0:
        request = "tick 4";
        a.answer = "0 1 2 3";
        break;
      case 1:
        a.answer = std::string(200'000, 'x');
        request = "echo " + a.answer;
        break;
      case 2:
        request = "none";
        break;
      default:
        a.answer = "hello";
        request = "echo hello";
    }
    const bool is_short = at_random(5) == 0;
    a.may_fail = is_short;
    a.told = site_.call(request,
                        is_short ? duration(at_random(2'000'000'000)) : duration::max(),
                        a.gone.get_token());
    calls_.push_back(std::move(a));
  }
  static void cancel(asked& a) {
    a.may_fail = true;
    a.gone.request_stop();
  }
  void stop(place& p) {
    for (const place& each : now_) {
      if (each.goes_on) return;
    }
    p.at->stop();
    p.goes_on = site_.sim.now() + duration(at_random(3'000'000'000));
  }
  void drain(place& p) {
    if (p.is_drained) return;
    p.is_drained = std::make_shared<bool>(false);
    auto draining = [](worker& w, std::shared_ptr<bool> told) -> task<void> {
      co_await w.server.drain();
      *told = true;
    };
    (void)p.at->start(draining(*p.at, p.is_drained));
  }
  void look_after(place& p) {
    if (p.goes_on && site_.sim.now() >= *p.goes_on) {
      p.goes_on.reset();
      p.at->go_on();
    }
    if (!p.is_drained || !*p.is_drained || p.goes_on) return;
    p.is_drained.reset();
    p.at = &site_.add(p.at->name.str());
  }
  void check() {
    for (place& p : now_) {
      if (p.goes_on) p.at->go_on();
    }
    for (const asked& a : calls_) {
      site_.await(*a.told);
      CAPTURE(a.told->why.text());
      CHECK((a.may_fail || !a.told->why));
      if (!a.told->why) CHECK((a.told->replies == a.answer));
    }
    CHECK(site_.until(
        [&] {
          const auto all = site_.workers->workers();
          return std::all_of(all.begin(), all.end(),
                             [](const worker_status& w) { return w.depth == 0; });
        },
        10s));
    for (const auto& w : site_.all)
      CHECK(static_cast<std::size_t>(w->ended) == w->begun.size());
    const dispatch_counters told = site_.workers->counters();
    CHECK(told.answered + told.failed == calls_.size());
    twice += told.asked_twice;
    back += told.given_back;
  }

 public:
  static inline std::uint64_t twice = 0, back = 0;

 private:
  site site_;
  std::vector<place> now_;
  std::vector<asked> calls_;
};

}  // namespace

TEST_CASE(
    "workers are stopped and drained while calls are given up: all others are answered, "
    "each once, and all places are free in the end") {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    CAPTURE(seed);
    mixed_troubles(seed).run();
  }
  CHECK(mixed_troubles::twice > 0);
  CHECK(mixed_troubles::back > 0);
}

TEST_SUITE_END();

}  // namespace manyworlds::dispatch_tests
