#include "io/reactor.hpp"

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

}  // namespace

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
  while (f.get().turn()) {}
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

TEST_CASE(
    "a poller that cannot wake bounds the sleep, and pollers may leave as they are "
    "polled") {
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

TEST_CASE("a thread bound to one CPU spins, and has none for helpers") {
  const duration spin = default_spin();
  CHECK((spin == duration::zero() || spin == reactor_options{}.spin));
  duration on_one_cpu{-1};
  bool has_helpers = true;
  std::thread pinned([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<unsigned>(::sched_getcpu()), &one);
    REQUIRE(::sched_setaffinity(0, sizeof one, &one) == 0);
    on_one_cpu = default_spin();
    has_helpers = has_cpus_for_helpers();
  });
  pinned.join();
  CHECK(on_one_cpu == spin);
  CHECK_FALSE(has_helpers);
}

TEST_CASE("what is posted before the close runs, what comes later is refused") {
  FOR_EACH_ENGINE(kind) {
    reactor_fixture f(kind);
    counted_work before;
    counted_work after;
    f.get().turn();
    CHECK(f.get().try_post(before));
    f.get().close();
    CHECK(before.runs == 1);
    CHECK_FALSE(f.get().try_post(after));
    f.get().turn();
    CHECK(after.runs == 0);
  }
}

TEST_CASE("every step that racing threads hand to a closing reactor runs or is refused") {
  reactor_fixture f(engine_kind::epoll);
  std::vector<counted_work> steps(20'000);
  std::atomic<std::size_t> handed{0};
  std::atomic<std::size_t> refused{0};
  std::thread poster([&] {
    for (counted_work& step : steps) {
      if (!f.get().try_post(step)) ++refused;
      ++handed;
    }
  });
  while (handed < 1000) f.get().turn();
  f.get().close();
  poster.join();
  const auto ran = static_cast<std::size_t>(std::count_if(
      steps.begin(), steps.end(), [](const counted_work& w) { return w.runs == 1; }));
  CHECK(ran + refused == steps.size());
}

TEST_CASE("a poller that may be slept on without end does not keep its loop awake") {
  struct patient final : poller {
    bool poll() noexcept override { return false; }
    bool prepare_sleep(std::optional<duration>& limit) noexcept override {
      limit = duration::max();
      return true;
    }
    void cancel_sleep() noexcept override {}
  };
  FOR_EACH_ENGINE(kind) {
    reactor_fixture f(kind);
    patient p;
    f.get().add(p);
    f.get().turn();
    const std::optional<duration> sleep = f.get().prepare_wait();
    CHECK((!sleep || *sleep > 1h));
    f.get().remove(p);
  }
}

TEST_SUITE_END();
