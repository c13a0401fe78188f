#include "manyworlds/io/reactor.hpp"

#include <doctest/doctest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "io/reactor_fixture.hpp"

using namespace manyworlds;
using namespace manyworlds::testing;

TEST_SUITE_BEGIN("reactor");

namespace {

/// Work that counts its runs, and remembers when it ran among others.
struct counted_work : work {
  counted_work() : work([](work& w) noexcept { ++static_cast<counted_work&>(w).runs; }) {}
  int runs = 0;
};

struct ordered_timer : timer {
  ordered_timer(std::vector<int>& o, int n)
      : timer([](timer& t) noexcept {
          auto& self = static_cast<ordered_timer&>(t);
          self.order.push_back(self.name);
        }),
        order(o),
        name(n) {}
  std::vector<int>& order;
  int name;
};

/// A poller over a counter that another thread raises, as a ring in shared memory would be.
class bell final : public poller {
 public:
  explicit bell(reactor& r) : reactor_(r) { r.add(*this); }
  ~bell() { reactor_.remove(*this); }

  void ring() {
    // Sequentially consistent, as in `prepare_sleep`: one of the two sees what the other wrote.
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
        for (std::size_t n = 0; n < per_thread; ++n) f.get().post(all[t * per_thread + n]);
      });
    }
    f.run_until([&] { return total == all.size(); });
    for (auto& p : posters) p.join();
    CHECK(std::all_of(all.begin(), all.end(), [](const counting& w) { return w.runs == 1; }));
  }
}

TEST_CASE("a thousand works posted one by one to a sleeping reactor are each run at once") {
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

TEST_CASE("timers expire in the order of their times, none early") {
  FOR_EACH_ENGINE(kind) {
    reactor_fixture f(kind);
    std::vector<int> order;
    ordered_timer late(order, 3);
    ordered_timer early(order, 1);
    ordered_timer middle(order, 2);
    ordered_timer never(order, 4);
    const time_point start = f.get().now();
    f.get().timers().arm(late, start + 30ms);
    f.get().timers().arm(early, start + 10ms);
    f.get().timers().arm(middle, start + 20ms);
    f.get().timers().arm(never, start + 15ms);
    f.get().timers().disarm(never);
    f.run_until([&] { return order.size() == 3; });
    CHECK(order == std::vector<int>{1, 2, 3});
    CHECK(f.get().now() >= start + 30ms);
  }
}

TEST_CASE("a turn is bounded, whatever is queued") {
  reactor_fixture f(engine_kind::epoll);
  std::vector<counted_work> many(1000);
  for (counted_work& w : many) f.get().schedule(w);
  const auto runs = [&] {
    int all = 0;
    for (const counted_work& w : many) all += w.runs;
    return all;
  };
  CHECK(f.get().next_due().has_value());
  CHECK(f.get().turn());
  CHECK(runs() > 0);
  CHECK(runs() <= 128);
  const std::uint64_t turns = f.get().turns();
  while (f.get().turn()) {
  }
  CHECK(runs() == 1000);
  CHECK(f.get().turns() > turns);
  CHECK(!f.get().next_due().has_value());
}

TEST_CASE("work runs on behalf of its reactor, and outside of turns nothing does") {
  reactor_fixture f(engine_kind::epoll);
  struct asking : work {
    explicit asking(reactor& r)
        : work([](work& w) noexcept {
            auto& self = static_cast<asking&>(w);
            self.inside = self.owner.is_current();
          }),
          owner(r) {}
    reactor& owner;
    bool inside = false;
  };
  asking w(f.get());
  CHECK(!f.get().is_current());
  f.get().execute(w);
  f.run_until([&] { return w.inside; });
  CHECK(!f.get().is_current());
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
      CHECK(b.asked() > 0);
    }
  }
}

TEST_CASE("a poller that cannot wake bounds the sleep, and pollers may leave as they are polled") {
  FOR_EACH_ENGINE(kind) {
    class shy final : public poller {
     public:
      shy(reactor& r, poller* other) : reactor_(r), other_(other) { r.add(*this); }
      bool poll() noexcept override {
        if (++polls_ < 5) return false;
        reactor_.remove(*this);
        if (other_) reactor_.remove(*other_);
        return true;
      }
      bool prepare_sleep(std::optional<duration>& limit) noexcept override {
        limit = limit ? std::min<duration>(*limit, 1ms) : duration(1ms);
        return true;
      }
      void cancel_sleep() noexcept override {}
      int polls_ = 0;

     private:
      reactor& reactor_;
      poller* other_;
    };
    reactor_fixture f(kind);
    shy first(f, nullptr);
    shy second(f, &first);
    f.run_until([&] { return second.polls_ == 5; });
    for (int n = 0; n < 3; ++n) f.get().turn();
    CHECK(first.polls_ == 4);
    CHECK(second.polls_ == 5);
  }
}

TEST_CASE("work that is still queued when its reactor goes is not run") {
  counted_work scheduled;
  counted_work posted;
  {
    reactor_fixture f(engine_kind::epoll);
    f.get().schedule(scheduled);
    f.get().post(posted);
  }
  CHECK(scheduled.runs == 0);
  CHECK(posted.runs == 0);
}

TEST_CASE("a machine with one usable CPU does not spin") {
  const duration spin = default_spin();
  CHECK((spin == duration::zero() || spin == reactor_options{}.spin));
  if (std::thread::hardware_concurrency() < 2) CHECK(spin == duration::zero());
  duration on_one_cpu{-1};
  std::thread pinned([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<unsigned>(::sched_getcpu()), &one);
    REQUIRE(::sched_setaffinity(0, sizeof one, &one) == 0);
    on_one_cpu = default_spin();
  });
  pinned.join();
  CHECK(on_one_cpu == duration::zero());
}

TEST_SUITE_END();
