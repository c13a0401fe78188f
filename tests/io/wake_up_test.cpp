// What other threads do to a reactor: post, wake, ring.
#include <doctest/doctest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "io/reactor.hpp"
#include "io/reactor_fixture.hpp"

using namespace manyworlds;
using namespace manyworlds::testing;

TEST_SUITE_BEGIN("wake_up");

namespace {

/// Work that counts its runs, and remembers when it ran among others.
struct counted_work : work {
  counted_work() : work([](work& w) noexcept { ++static_cast<counted_work&>(w).runs; }) {}
  int runs = 0;
};

/// A poller over a counter that another thread raises, as a ring in shared memory would
/// be.
class bell final : public poller {
 public:
  explicit bell(reactor& r) : reactor_(r) { r.add(*this); }
  ~bell() { reactor_.remove(*this); }

  void ring() {
    // Sequentially consistent, as in `prepare_sleep`: one of the two sees what the other
    // wrote.
    rung_.fetch_add(1);
    if (armed_.load()) reactor_.wake();
  }
  int heard() const { return heard_; }
  int asked() const { return asked_; }

  bool poll() noexcept override {
    const int now = rung_.load();
    return std::exchange(heard_, now) != now;
  }
  bool prepare_sleep(std::optional<duration>&) noexcept override {
    ++asked_;
    CHECK(!armed_);
    armed_.store(true);
    return rung_.load() == heard_;
  }
  void cancel_sleep() noexcept override {
    CHECK(armed_);
    armed_.store(false);
  }

 private:
  reactor& reactor_;
  std::atomic<int> rung_{0};
  std::atomic<bool> armed_{false};
  int heard_ = 0;
  int asked_ = 0;
};

void pin_to(int cpu) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<unsigned>(cpu), &one);
  REQUIRE(::sched_setaffinity(0, sizeof one, &one) == 0);
}

/// Hands a word to another thread and waits for it to come back; counts its empty looks.
class juggler final : public poller {
 public:
  explicit juggler(reactor& r, std::atomic<bool>& away) : reactor_(r), away_(away) {
    r.add(*this);
  }
  ~juggler() { reactor_.remove(*this); }

  [[nodiscard]] const std::vector<int>& looks() const { return looks_; }

  bool poll() noexcept override {
    ++looking_;
    if (away_.load()) return false;
    looks_.push_back(std::exchange(looking_, 0));
    away_.store(true);
    return true;
  }
  bool prepare_sleep(std::optional<duration>& limit) noexcept override {
    limit = 1ms;
    return away_.load();
  }
  void cancel_sleep() noexcept override {}

 private:
  reactor& reactor_;
  std::atomic<bool>& away_;
  std::vector<int> looks_;
  int looking_ = 0;
};

}  // namespace

TEST_CASE("work posted by four threads runs once each, and none waits for a timer") {
  FOR_EACH_ENGINE(kind) {
    reactor_fixture f(kind);
    constexpr std::size_t per_thread = 25'000;
    constexpr std::size_t threads = 4;
    struct counting : work {
      counting()
          : work([](work& w) noexcept {
              auto& self = static_cast<counting&>(w);
              ++self.runs;
              ++*self.total;
            }) {}
      int runs = 0;
      std::size_t* total = nullptr;
    };
    std::size_t total = 0;
    std::vector<counting> all(per_thread * threads);
    for (counting& w : all) w.total = &total;
    std::vector<std::thread> posters;
    for (std::size_t t = 0; t < threads; ++t) {
      posters.emplace_back([&, t] {
        for (std::size_t n = 0; n < per_thread; ++n)
          f.get().post(all[t * per_thread + n]);
      });
    }
    f.run_until([&] { return total == all.size(); });
    for (auto& p : posters) p.join();
    CHECK(std::all_of(all.begin(), all.end(),
                      [](const counting& w) { return w.runs == 1; }));
  }
}

TEST_CASE(
    "a thousand works posted one by one to a sleeping reactor are each run at once") {
  FOR_EACH_ENGINE(kind) {
    reactor_fixture here(kind);
    std::atomic<int> run{0};
    struct counting : work {
      explicit counting(std::atomic<int>& c)
          : work([](work& w) noexcept { ++static_cast<counting&>(w).count; }), count(c) {}
      std::atomic<int>& count;
    };
    counting w(run);
    constexpr int rounds = 1000;
    std::thread poster([&] {
      const time_limit limit;
      for (int n = 0; n < rounds && !limit.passed(); ++n) {
        here.get().post(w);
        while (run.load() == n && !limit.passed()) std::this_thread::yield();
      }
    });
    here.run_until([&] { return run.load() == rounds; });
    poster.join();
    CHECK(run.load() == rounds);
  }
}

TEST_CASE("a reactor may be destroyed while the post that ended it is still returning") {
  FOR_EACH_ENGINE(kind) {
    for (int n = 0; n < 200; ++n) {
      auto r = std::make_unique<reactor>(make_engine(kind).engine, reactor_options{});
      counted_work last;
      std::thread poster([&] { r->post(last); });
      const time_limit limit;
      r->run_until([&] { return last.runs == 1 || limit.passed(); });
      reactor* gone = r.release();
      delete gone;
      poster.join();
      CHECK(last.runs == 1);
    }
  }
}

TEST_CASE("a condition that another thread makes true is seen after a wake") {
  FOR_EACH_ENGINE(kind) {
    reactor_fixture f(kind);
    for (int n = 0; n < 200; ++n) {
      std::atomic<bool> over{false};
      std::thread other([&] {
        over.store(true);
        f.get().wake();
      });
      f.run_until([&] { return over.load(); });
      other.join();
    }
  }
}

TEST_CASE("a poller is heard while the reactor spins and while it sleeps") {
  FOR_EACH_ENGINE(kind) {
    for (const duration spin : {duration(0), duration(20us)}) {
      reactor_fixture f(kind, spin);
      bell b(f);
      constexpr int rounds = 2000;
      std::atomic<int> heard{0};
      std::thread ringer([&] {
        const time_limit limit;
        for (int n = 0; n < rounds && !limit.passed(); ++n) {
          b.ring();
          while (heard.load() <= n && !limit.passed()) std::this_thread::yield();
        }
      });
      f.run_until([&] {
        heard.store(b.heard());
        return b.heard() == rounds;
      });
      ringer.join();
      if (spin == duration::zero()) CHECK(b.asked() > 0);
    }
  }
}

TEST_CASE("a reactor that does not spin does so while it expects a message") {
  FOR_EACH_ENGINE(kind) {
    for (const bool expects : {false, true}) {
      constexpr reactor_options still{.spin = duration::zero(), .attention = 60s};
      reactor r(make_engine(kind).engine, still);
      bell b(r);
      counted_work message;
      std::thread other([&] {
        const time_limit limit;
        std::this_thread::sleep_for(10ms);
        while (!expects && !r.is_parked() && !limit.passed()) std::this_thread::yield();
        r.post(message);
      });
      if (expects) r.expect_soon();
      r.run_until([&] { return message.runs > 0; });
      other.join();
      // It has prepared no sleep while it was attentive.
      CHECK((b.asked() == 0) == expects);
    }
  }
}

TEST_CASE("a reactor that spins lets a thread of its own CPU run that it waits for") {
  FOR_EACH_ENGINE(kind) {
    constexpr std::size_t rounds = 200;
    std::atomic<bool> away{false};
    std::atomic<bool> over{false};
    const int cpu = ::sched_getcpu();
    std::thread other([&] {
      pin_to(cpu);
      while (!over.load()) {
        away.store(false);
        std::this_thread::yield();
      }
    });
    std::vector<int> looks;
    std::thread spinning([&] {
      pin_to(cpu);
      reactor r(make_engine(kind).engine, reactor_options{.spin = 10s});
      juggler j(r, away);
      const time_limit limit;
      r.run_until([&] { return j.looks().size() >= rounds || limit.passed(); });
      looks = j.looks();
    });
    spinning.join();
    over.store(true);
    other.join();
    REQUIRE(looks.size() >= rounds);
    // Until the next tick, which would end the spinning otherwise, it looks 100,000
    // times.
    std::nth_element(looks.begin(), looks.begin() + rounds / 2, looks.end());
    CHECK(looks[rounds / 2] < 2000);
  }
}

TEST_SUITE_END();
