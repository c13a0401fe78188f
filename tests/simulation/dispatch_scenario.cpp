// Calls over workers that are stopped and go on, or that leave in order and come back.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "manyworlds/mw.hpp"
#include "simulation/pattern.hpp"
#include "simulation/scenario.hpp"
#include "simulation/world_cluster.hpp"

namespace manyworlds_tests {

namespace {

/// How many calls a worker has when all its places are taken.
constexpr std::size_t places = 16;
/// What a call may take when its worker is stopped.
constexpr mw::duration in_time = 1500ms;

/// One leader, two to four workers, and users who ask one call after the other.
class dispatch_scenario {
 public:
  dispatch_scenario(std::uint64_t seed, std::size_t lines, placement where)
      : all_(seed, network(where)), seed_(seed), where_(where) {
    all_.lines_kept = lines;
  }
  seed_report run();

 private:
  /// What is done to the workers: each stopped by itself; most of them at once; drained.
  enum class trouble : std::uint64_t { stop, freeze, drain };

  struct worker {
    std::optional<mw::call_server> server;
    std::uint64_t begun = 0;
    std::uint64_t ended = 0;
    /// Drains are done one behind the other.
    bool is_draining = false;
  };

  static mw::simulation_options network(placement where) {
    mw::simulation_options o;
    o.shared_memory = where == placement::together;
    return o;
  }
  [[nodiscard]] std::size_t chosen(std::uint64_t by, std::size_t among) const {
    return static_cast<std::size_t>(mixed(seed_ * 16 + by) % among);
  }
  mw::task<void> lead(std::size_t worker);
  mw::task<void> work(std::size_t self);
  mw::task<void> handle(worker& w, mw::served_call& c);
  mw::task<void> use();
  mw::task<void> call_once();
  mw::task<void> drain_and_come_back(std::size_t self);
  void stop_workers();
  void check();

  cluster all_;
  std::uint64_t seed_;
  placement where_;
  trouble kind_ = trouble::stop;
  mw::dispatch_options options_;
  std::unique_ptr<mw::dispatcher> workers_;
  std::vector<std::unique_ptr<worker>> at_;
  std::uint64_t calls_ = 0;
  std::uint64_t answered_ = 0;
  std::size_t users_left_ = 0;
  mw::duration slowest_{0};
  bool over_ = false;
};

std::string name_of_world(std::size_t worker) { return fmt::format("w{}", worker); }

mw::task<void> dispatch_scenario::lead(std::size_t worker) {
  member_process& leader = all_.at(0);
  const mw::world_options o{
      .name = mw::world_name(name_of_world(worker)), .rank = 0, .size = 2};
  auto serve = [this](mw::world& w) -> mw::task<void> {
    all_.watch(w);
    co_await workers_->serve(w);
  };
  co_await mw::keep(leader.runtime(), *leader.rendezvous, o, serve,
                    mw::after_close::form_again);
}

mw::task<void> dispatch_scenario::handle(worker& w, mw::served_call& c) {
  struct counted {
    explicit counted(worker& w) : w(w) { ++w.begun; }
    ~counted() { ++w.ended; }
    worker& w;
  } const counts(w);
  std::uint64_t word = 0;
  if (c.data().size() != sizeof word) co_return;
  std::memcpy(&word, c.data().data(), sizeof word);
  co_await mw::sleep_for(mw::duration(mixed(word) % 20'000'000));
  // Two replies, close together: a stop between them is rare, and then the call waits.
  for (std::uint64_t i = 0; i < 2; ++i) {
    const std::uint64_t reply = word * 2 + i;
    co_await c.reply(mw::object(reply));
  }
}

mw::task<void> dispatch_scenario::work(std::size_t self) {
  worker& w = *at_[self];
  member_process& p = all_.at(1 + self);
  const mw::world_options o{
      .name = mw::world_name(name_of_world(self)), .rank = 1, .size = 2};
  while (!over_ && !p.runtime().is_stopping()) {
    w.server.emplace([this, &w](mw::served_call& c) { return handle(w, c); },
                     mw::call_server_options{.concurrent = places});
    auto serve = [&w](mw::world& in) { return w.server->serve(in); };
    co_await mw::keep(p.runtime(), *p.rendezvous, o, serve, mw::after_close::form_again);
    // Drained: what waits for that goes first.
    while (w.is_draining) co_await mw::sleep_for(1ms);
  }
}

mw::task<void> dispatch_scenario::call_once() {
  const std::uint64_t word = ++calls_;
  const mw::time_point begun = all_.sim.now();
  std::vector<std::uint64_t> got;
  mw::failure why;
  mw::time_point first = begun;
  {
    auto called = co_await mw::outcome(workers_->call(mw::object(word)));
    first = all_.sim.now();
    why = called.error();
    while (called) {
      auto next = co_await mw::outcome(called->next());
      why = next.error();
      if (!next || !*next) break;
      std::uint64_t reply = 0;
      if ((*next)->size() == sizeof reply)
        std::memcpy(&reply, (*next)->data(), sizeof reply);
      got.push_back(reply);
    }
  }
  if (over_) co_return;
  if (why) {
    all_.story.complain(fmt::format("call {} failed: {}", word, why.text()));
  } else if (got != std::vector<std::uint64_t>{word * 2, word * 2 + 1}) {
    all_.story.complain(
        fmt::format("law 1: call {} was answered by {} replies, or by those of another",
                    word, got.size()));
  }
  ++answered_;
  slowest_ = std::max(slowest_, first - begun);
}

mw::task<void> dispatch_scenario::use() {
  const bool is_busy = kind_ == trouble::drain;
  const std::size_t count = (is_busy ? 100 : 20) + chosen(1, 40);
  for (std::size_t i = 0; i < count && !over_; ++i) {
    co_await call_once();
    const std::uint64_t longest = is_busy ? 2'000'000 : 200'000'000;
    co_await mw::sleep_for(mw::duration(mixed(seed_ ^ calls_) % longest));
  }
  --users_left_;
}

mw::task<void> dispatch_scenario::drain_and_come_back(std::size_t self) {
  worker& w = *at_[self];
  if (!w.server) co_return;
  if (std::exchange(w.is_draining, true)) co_return;
  co_await w.server->drain();
  if (w.begun != w.ended) all_.story.complain("a worker drained and had calls open");
  w.is_draining = false;
}

/// From a little time on, each time a worker, or most of them.
void dispatch_scenario::stop_workers() {
  mw::duration when = 300ms;
  const bool drains = kind_ == trouble::drain;
  for (std::uint64_t i = 0; i < (drains ? 8 : 4); ++i) {
    when += (drains ? 150ms : 2200ms) +
            mw::duration(chosen(20 + i, drains ? 100 : 1000) * 1'000'000);
    all_.sim.after(when, [this, i] {
      if (over_) return;
      const std::size_t victim = (chosen(30, at_.size()) + i) % at_.size();
      if (kind_ == trouble::drain) {
        all_.at(1 + victim).start(drain_and_come_back(victim));
        return;
      }
      const mw::duration span = 100ms + mw::duration(chosen(40 + i, 1800) * 1'000'000);
      all_.stop(all_.at(1 + victim), span);
      if (kind_ != trouble::freeze) return;
      // They go on one behind the other.
      for (std::size_t other = 0; other < at_.size(); ++other)
        all_.stop(all_.at(1 + other), span + other * 80ms);
    });
  }
}

void dispatch_scenario::check() {
  const mw::dispatch_counters told = workers_->counters();
  if (told.answered != answered_) {
    all_.story.complain(fmt::format("law 1: {} calls were answered, and {} are counted",
                                    answered_, told.answered));
  }
  std::uint64_t begun = 0;
  for (const auto& w : at_) {
    begun += w->begun;
    if (w->begun != w->ended)
      all_.story.complain("a handler goes on though its call is over");
  }
  // Answers refill no budget beyond what it is at first.
  const double refilled = static_cast<double>(answered_) / 10;
  const double most =
      options_.ask_again == 0 ? 0 : static_cast<double>(options_.ask_again) + refilled;
  if (static_cast<double>(told.asked_twice) > most || begun > calls_ + told.asked_twice) {
    all_.story.complain(
        fmt::format("{} calls were asked twice and {} begun of {}, with a budget of {}",
                    told.asked_twice, begun, calls_, options_.ask_again));
  }
  if (kind_ != trouble::stop && told.asked_twice != 0)
    all_.story.complain(fmt::format("{} calls were asked twice", told.asked_twice));
  const bool has_budget = options_.ask_again >= places;
  if (kind_ != trouble::freeze && has_budget && slowest_ > in_time) {
    all_.story.complain(
        fmt::format("a call waited {} ms for its first reply", slowest_ / 1ms));
  }
}

seed_report dispatch_scenario::run() {
  kind_ = static_cast<trouble>(seed_ % 3);
  // A drained worker gives calls back, which is no try.
  options_.tries = kind_ == trouble::drain ? 1 : 3;
  options_.in_flight_per_worker = places;
  options_.ask_again = chosen(2, 3) == 0 ? 0 : 256;
  options_.patience = 20s;
  workers_ = std::make_unique<mw::dispatcher>(options_);
  const std::size_t count = 2 + chosen(3, 3);
  all_.add("leader");
  for (std::size_t i = 0; i < count; ++i) {
    where_ == placement::apart ? all_.add(fmt::format("worker{}", i))
                               : all_.add(fmt::format("worker{}", i), all_.at(0));
    at_.push_back(std::make_unique<worker>());
    all_.at(0).start(lead(i));
    all_.at(1 + i).start(work(i));
  }
  const auto all_serve = [this] { return workers_->workers().size() == at_.size(); };
  if (!all_.run_until(all_serve, 2s)) all_.story.complain("not all serve in time");
  stop_workers();
  users_left_ = 4 + chosen(4, 6);
  for (std::size_t i = users_left_; i > 0; --i) all_.at(0).start(use());
  if (!all_.run_until([this] { return users_left_ == 0; }, 60s))
    all_.story.complain("law 9: users wait for answers");
  // What was asked twice is cancelled, and those that are stopped go on.
  all_.run_for(5s);
  check();
  over_ = true;
  all_.close();
  seed_report r = finished(all_);
  return r;
}

}  // namespace

seed_report run_dispatch_seed(std::uint64_t seed, std::size_t lines, placement where) {
  dispatch_scenario scenario(seed, lines, where);
  return scenario.run();
}

}  // namespace manyworlds_tests
