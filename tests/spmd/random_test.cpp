// Sessions at random: calls of all kinds while workers are killed and stopped. What is
// answered is right, all that is awaited ends, and in the end all is as at the beginning
// (S-a to S-e; disco A61).
#include <csignal>
#include <cstdlib>
#include <random>

#include "session_fixture.hpp"

namespace manyworlds::spmd_tests {

namespace {

constexpr int workers_at_random = 3;

class random_session {
 public:
  random_session(session& s, std::uint32_t seed) : s_(s), random_(seed) {}

  task<void> run(duration time, bool hurts) {
    auto hurting = [&]() -> task<void> {
      co_await sleep_for(time);
      is_over_ = true;
    };
    auto killing = [&]() -> task<void> {
      while (hurts && !is_over_) co_await hurt();
    };
    co_await when_all(hurting(), killing(), call_on(), call_on(), call_on());
    // One that was stopped is lost only when it was silent for long enough.
    bool is_whole = false;
    for (int tries = 0; tries < 1000 && !is_whole; ++tries) {
      for (int k = 0; k < workers_at_random; ++k) co_await mend(k);
      for (int i = 0; i < 20 && co_await is_told_an_error(); ++i) {}
      is_whole = co_await all_take_part();
      co_await sleep_for(10ms);
    }
    CHECK(is_whole);
    CHECK(wrong_ == 0);
    MESSAGE("right ", right_, ", failed ", failed_, ", hurt ", hurt_);
  }

 private:
  int below(int limit) {
    return static_cast<int>(random_() % static_cast<std::uint32_t>(limit));
  }
  void judge(bool is_right) { ++(is_right ? right_ : wrong_); }

  task<bool> is_told_an_error() {
    try {
      co_await s_.sync();
    } catch (const call_error&) {
      co_return true;
    }
    co_return false;
  }

  task<bool> all_take_part() {
    std::vector<int> all;
    try {
      all = co_await s_.call(fails_on, 1000).all();
    } catch (const call_error&) {
      co_return false;
    }
    judge(all == ints(3, 3, 3));
    co_return true;
  }

  task<void> mend(int worker) {
    for (int tries = 0; tries < 20; ++tries) {
      if (s_.describe(worker).state == worker_state::ready) co_return;
      try {
        co_await s_.respawn(worker);
      } catch (const world_error&) {
        // It was hurt again.
      }
    }
  }

  task<void> hurt() {
    co_await sleep_for(std::chrono::milliseconds(5 + below(40)));
    const int worker = below(workers_at_random);
    const auto pid = static_cast<pid_t>(s_.describe(worker).pid);
    if (pid != 0) {
      ::kill(pid, below(4) == 0 ? SIGSTOP : SIGKILL);
      ++hurt_;
    }
    co_await sleep_for(std::chrono::milliseconds(below(20)));
    if (below(3) != 0) co_await mend(worker);
  }

  task<void> call_on() {
    while (!is_over_) {
      auto one = [this]() -> task<void> {
        switch (below(9)) {
          case 0: {
            const int x = below(1000);
            const std::vector<int> all = co_await s_.call(add_one, x).all();
            judge(all == ints(x + 1, x + 1, x + 1));
            break;
          }
          case 1: {
            const int x = below(1000);
            const dref<int> a = co_await s_.issue(add_one, x);
            const dref<int> b = co_await s_.issue(one_more, a);
            const int c = co_await s_.call(one_more, b).from(below(workers_at_random));
            judge(c == x + 3);
            break;
          }
          case 2: {
            const int n = co_await s_.call(fails_on, 1000).from(below(workers_at_random));
            judge(n == workers_at_random);
            break;
          }
          case 3:
            (void)co_await s_.issue(fails_on, below(workers_at_random));
            break;
          case 4:
            co_await s_.call(all_but_one_enter, below(workers_at_random), 50)
                .within(std::chrono::milliseconds(1 + below(10)));
            break;
          case 5: {
            tensor x = tensor::zeros(40'000, dtype::float32);
            const tensor y =
                co_await s_.call(plus_one_each, x).from(below(workers_at_random));
            judge(y.count() == x.count() && y.as<float>()[39'999] == 1);
            break;
          }
          case 6: {
            const mesh two = s_.mesh({below(2) == 0 ? 0 : 1, 2});
            const int n = co_await two.call(fails_on, 1000).from(2);
            judge(n == 2);
            break;
          }
          case 7:
            co_await s_.sync();
            break;
          default: {
            auto entering = [this]() -> task<void> {
              co_await s_.call(all_but_one_enter, below(workers_at_random), 50);
            };
            co_await within(entering(), std::chrono::milliseconds(1 + below(10)));
            break;
          }
        }
      };
      bool has_failed = false;
      try {
        co_await one();
      } catch (const call_error&) {
        has_failed = true;
      } catch (const timed_out&) {
        has_failed = true;
      }
      if (has_failed) ++failed_;
      co_await sleep_for(std::chrono::microseconds(below(2) == 0 ? 1 : 500));
    }
  }

  session& s_;
  std::mt19937 random_;
  bool is_over_ = false;
  int right_ = 0;
  int wrong_ = 0;
  int failed_ = 0;
  int hurt_ = 0;
};

duration time_at_random() {
  const char* const seconds = std::getenv("MANYWORLDS_SESSION_SECONDS");
  return std::chrono::seconds(seconds ? std::atoi(seconds) : 2);
}

std::uint32_t seed_at_random() {
  const char* const seed = std::getenv("MANYWORLDS_SESSION_SEED");
  return seed ? static_cast<std::uint32_t>(std::atoi(seed)) : 1;
}

}  // namespace

TEST_CASE("calls at random, of threads that fail and are late, are right or named") {
  in_session(worker_kind::threads, workers_at_random, [](session& s) -> task<void> {
    random_session all(s, seed_at_random());
    co_await all.run(time_at_random(), false);
  });
}

TEST_CASE(
    "calls at random, of processes that are killed and stopped, are right or named") {
  session_options limits;
  limits.suspect_after = 100ms;
  limits.lost_after = 300ms;
  in_session(
      worker_kind::processes, workers_at_random,
      [](session& s) -> task<void> {
        random_session all(s, seed_at_random());
        co_await all.run(time_at_random(), true);
      },
      limits);
}

}  // namespace manyworlds::spmd_tests
