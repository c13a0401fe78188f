// Measures handing a call's replies to a thread that is not the dispatcher's.
#include "bridge.hpp"

#include <sys/resource.h>

#include <chrono>
#include <cstdint>
#include <manyworlds/interop/reply_feed.hpp>
#include <memory>
#include <optional>

#include "timing.hpp"

namespace mwbench {

namespace {

using namespace std::chrono_literals;

struct burst {
  std::uint64_t replies = 0;
  std::uint64_t pause_ns = 0;
};
constexpr std::size_t token_bytes = 16;

mw::task<void> answer(mw::served_call& call) {
  burst asked;
  if (call.data().size() != sizeof asked) co_return;
  std::memcpy(&asked, call.data().data(), sizeof asked);
  const std::array<std::byte, token_bytes> token{};
  for (std::uint64_t i = 0; i < asked.replies; ++i) {
    if (asked.pause_ns > 0) co_await mw::sleep_for(mw::duration(asked.pause_ns));
    co_await call.reply(token);
  }
}

double cpu_ns() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto of = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_usec) * 1e3;
  };
  return of(used.ru_utime) + of(used.ru_stime);
}

/// A dispatcher and a worker, in runtimes with threads of their own.
class front {
 public:
  explicit front(const common_options& common)
      : there_(runtime_options_of(common)), here_(runtime_options_of(common)) {
    auto serve = [this](mw::world& w) { return workers_.serve(w); };
    auto work = [this](mw::world& w) { return server_.serve(w); };
    leading_ =
        here_.start(mw::keep(here_, store_, {.name = "front", .rank = 0, .size = 2},
                             serve, mw::after_close::form_again));
    working_ = there_.start(
        mw::keep(there_, store_, {.name = "front", .rank = 1, .size = 2}, work));
  }
  ~front() {
    there_.stop(5s);
    (void)working_->wait_for(10s);
    here_.stop();
    (void)leading_->wait_for(10s);
  }

  /// A task for each reply, started by the thread that takes it. It costs two changes
  /// of threads.
  void by_tasks(const burst& asked) {
    auto call = [this](burst asked) -> mw::task<std::shared_ptr<mw::reply_stream>> {
      co_return std::make_shared<mw::reply_stream>(
          co_await workers_.call(mw::object(asked)));
    };
    auto next = [](std::shared_ptr<mw::reply_stream> s) -> mw::task<bool> {
      co_return bool(co_await s->next());
    };
    auto drop = [](std::shared_ptr<mw::reply_stream> s) -> mw::task<void> {
      *s = mw::reply_stream();
      co_return;
    };
    auto stream = here_.start(call(asked)).get();
    while (here_.start(next(stream)).get()) {}
    here_.start(drop(stream)).get();
  }
  void by_feed(const burst& asked) {
    const auto raw = std::as_bytes(std::span(&asked, 1));
    mw::reply_feed feed(here_, workers_, std::vector<std::byte>(raw.begin(), raw.end()));
    while (!feed.take(1s).is_over) {}
  }

 private:
  mw::memory_store store_;
  mw::call_server server_{answer};
  mw::dispatcher workers_;
  mw::runtime there_;
  mw::runtime here_;
  std::optional<mw::started<void>> leading_;
  std::optional<mw::started<void>> working_;
};

}  // namespace

std::vector<bridge_figures> measure_bridges(const common_options& common, int count,
                                            int rounds) {
  front f(common);
  const auto replies = static_cast<std::uint64_t>(std::max(count / 10, 10));
  bridge_figures quick{"replies to a thread, in a burst", {}, {}};
  bridge_figures slow{"replies to a thread, 0.2 ms apart: CPU", {}, {}};
  const burst fast{.replies = replies};
  const burst paced{.replies = std::min<std::uint64_t>(replies, 1000),
                    .pause_ns = 200'000};
  const auto wall = [&](auto way) {
    const auto begin = now_ns();
    (f.*way)(fast);
    return static_cast<double>(now_ns() - begin) / static_cast<double>(fast.replies);
  };
  const auto cpu = [&](auto way) {
    const double before = cpu_ns();
    (f.*way)(paced);
    return (cpu_ns() - before) / static_cast<double>(paced.replies);
  };
  for (int round = 0; round <= rounds; ++round) {
    const double tasks = wall(&front::by_tasks), feed = wall(&front::by_feed);
    const double tasks_cpu = cpu(&front::by_tasks), feed_cpu = cpu(&front::by_feed);
    // The first round warms up.
    if (round == 0) continue;
    quick.by_tasks.add(tasks);
    quick.by_feed.add(feed);
    slow.by_tasks.add(tasks_cpu);
    slow.by_feed.add(feed_cpu);
  }
  return {quick, slow};
}

}  // namespace mwbench
