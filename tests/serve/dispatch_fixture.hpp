// A leader with a dispatcher, and workers that come and go, in virtual time.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "manyworlds/mw.hpp"
#include "manyworlds/testing/simulation.hpp"
#include "support/kept_log.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::dispatch_tests {

using namespace std::chrono_literals;

inline std::string text(std::span<const std::byte> data) {
  return std::string(reinterpret_cast<const char*>(data.data()), data.size());
}

class site;

/// A simulated process with a runtime, which may be killed.
class process {
 public:
  process(site& s, std::string name);
  ~process() { end(); }

  template <class T>
  started<T> start(task<T> t) {
    started<T> s = rt->start(std::move(t));
    has_ended_.push_back([s] { return s.is_ready(); });
    return s;
  }
  void kill() { sim_.kill(in_); }
  /// Runs again if it was stopped or killed, the latter cut off from all others.
  void release() {
    sim_.resume(in_);
    sim_.release(in_);
  }
  /// Ends its tasks, in their own time, then its runtime.
  void end() {
    if (!rt) return;
    release();
    rt->stop();
    const auto is_quiet = [this] {
      return std::all_of(has_ended_.begin(), has_ended_.end(),
                         [](const auto& ended) { return ended(); });
    };
    CHECK(sim_.run_until(is_quiet, 30s));
    // No time passes while a runtime ends: its worlds, and its peers', need some before.
    sim_.run_for(6s);
    rt.reset();
  }
  void stop() { sim_.stop(in_); }
  void go_on() { sim_.resume(in_); }

 private:
  simulation& sim_;
  simulated_process& in_;
  std::vector<std::function<bool()>> has_ended_;

 public:
  testing::kept_log told;
  std::unique_ptr<runtime> rt;
};

/// What a worker does to a call, by the request's text:
///   "echo TEXT"   replies TEXT
///   "count N"     replies "0" .. "N-1"
///   "tick N"      the same, 10 ms apart
///   "big N"       one reply of N bytes
///   "pair N"      replies "pair", then N bytes
///   "hasty N"     gives up a reply of N bytes, twice, then replies "hasty"
///   "late N"      gives up a reply of N bytes after 500 ms, then as "count 50"
///   "stubborn N"  the same as "count", each reply shielded
///   "hold"        waits until it is stopped
///   "first"       replies "first", then waits until it is stopped
///   "throw"       throws; "busy" throws `overloaded`
///   "none"        replies nothing
class worker : public process {
 public:
  worker(site& s, const std::string& name, call_server_options options = {});
  // Before what its tasks refer to.
  ~worker() { end(); }

  /// Its world with the leader.
  world_name name;
  call_server server;
  /// What it has seen.
  std::vector<std::string> begun;
  std::vector<std::uint64_t> ids;
  std::vector<std::uint32_t> earlier_tries;
  std::vector<std::optional<duration>> time_left;
  std::uint64_t replies = 0;
  int given_up = 0, ended = 0;
  /// How many of `ended` had their token triggered.
  int stopped_early = 0;

 private:
  task<void> handle(served_call& c);
};

/// What became of a call.
struct story {
  std::string replies;
  std::uint64_t count = 0;
  failure why;
  bool has_stream = false;
  bool is_over = false;
  reply_stream stream;
};

class site {
 public:
  explicit site(dispatch_options options = {}, std::uint64_t seed = 1)
      : sim(seed), leader(*this, "leader") {
    workers.emplace(options);
  }
  // What its tasks use is destroyed before it.
  ~site() { leader.end(); }

  /// A worker under that name, kept at both ends.
  worker& add(const std::string& name, call_server_options options = {}) {
    if (!std::count(names_.begin(), names_.end(), name)) lead(name);
    all.push_back(std::make_unique<worker>(*this, name, options));
    return *all.back();
  }
  /// Serves that world at the leader, for as long as it comes back.
  void lead(const std::string& name) {
    names_.push_back(name);
    auto body = [this, name](world& w) -> task<void> {
      led[name] = &w;
      auto served = co_await outcome(workers->serve(w));
      if (!served) last_loss = served.error();
      served.value();
    };
    (void)leader.start(keep(*leader.rt, store, {.name = name, .rank = 0, .size = 2}, body,
                            after_close::form_again));
  }
  void await_workers(std::size_t count) {
    REQUIRE(sim.run_until([&] { return workers->workers().size() == count; }, 60s));
  }

  /// Calls and reads all replies.
  std::shared_ptr<story> call(std::string request, duration limit = duration::max(),
                              std::stop_token token = {}) {
    return call(std::move(request), least_depth(), limit, std::move(token));
  }
  template <class Pick>
  requires std::invocable<const Pick&, std::span<const worker_status>>
      std::shared_ptr<story> call(std::string request, Pick pick,
                                  duration limit = duration::max(),
                                  std::stop_token token = {}) {
    auto s = std::make_shared<story>();
    (void)leader.start(
        read_all(s, std::move(request), std::move(pick), limit, std::move(token)));
    return s;
  }
  /// Calls, and leaves the stream to the test.
  std::shared_ptr<story> open(std::string request) {
    auto s = std::make_shared<story>();
    (void)leader.start(open_one(s, std::move(request)));
    return s;
  }
  /// On the leader's reactor, to its end.
  void run(task<void> t) {
    auto running = leader.start(std::move(t));
    REQUIRE_MESSAGE(sim.run_until([&] { return running.is_ready(); }, 60s),
                    sim.describe());
    running.get();
  }
  void await(const story& s, duration limit = 60s) {
    REQUIRE_MESSAGE(sim.run_until([&] { return s.is_over; }, limit), sim.describe());
  }
  template <class Finished>
  [[nodiscard]] bool until(Finished finished, duration limit = 60s) {
    return sim.run_until(finished, limit);
  }

  simulation sim;
  memory_store store;
  process leader;
  std::optional<dispatcher> workers;
  std::vector<std::unique_ptr<worker>> all;
  failure last_loss;
  /// The leader's worlds, each the latest of its name.
  std::map<std::string, world*> led;

 private:
  template <class Pick>
  task<void> read_all(std::shared_ptr<story> s, std::string request, Pick pick,
                      duration limit, std::stop_token token) {
    // Without a limit if that is the largest.
    auto called = workers->call(request, pick).within(limit);
    auto replies = co_await outcome(std::move(called).stop(token));
    s->has_stream = replies.has_value();
    s->why = replies.error();
    while (replies) {
      auto next = co_await outcome(replies->next());
      s->why = next.error();
      if (!next || !*next) break;
      s->replies += (s->replies.empty() ? "" : " ") + text(**next);
      s->count = replies->received();
    }
    s->is_over = true;
  }
  task<void> open_one(std::shared_ptr<story> s, std::string request) {
    auto replies = co_await outcome(workers->call(request));
    s->why = replies.error();
    s->has_stream = replies.has_value();
    if (replies) s->stream = std::move(*replies);
    s->is_over = true;
  }
  std::vector<std::string> names_;
};

// --------------------------------------------------------------------------------------

inline process::process(site& s, std::string name)
    : sim_(s.sim), in_(s.sim.add_process(std::move(name))) {
  runtime_options options;
  options.environment = &in_;
  options.log = &told;
  rt = std::make_unique<runtime>(options);
}

inline worker::worker(site& s, const std::string& name, call_server_options options)
    : process(s, name),
      name(name),
      server([this](served_call& c) { return handle(c); }, options) {
  auto body = [this](world& w) { return server.serve(w); };
  (void)start(keep(*rt, s.store, {.name = name, .rank = 1, .size = 2}, body,
                   after_close::form_again));
}

inline task<void> worker::handle(served_call& c) {
  struct leaving {
    explicit leaving(worker& w, served_call& c) : w(w), c(c) {}
    ~leaving() {
      ++w.ended;
      w.stopped_early += c.stop_token().stop_requested();
    }
    worker& w;
    served_call& c;
  } const counts(*this, c);
  const std::string whole = text(c.data());
  begun.push_back(whole);
  ids.push_back(c.id());
  earlier_tries.push_back(c.earlier_tries());
  time_left.push_back(c.deadline()
                          ? std::optional<duration>(*c.deadline() - rt->home().now())
                          : std::nullopt);
  const std::string what = whole.substr(0, whole.find(' '));
  const std::string rest =
      what.size() < whole.size() ? whole.substr(what.size() + 1) : std::string();
  if (what == "echo") co_await c.reply(rest);
  if (what == "late" || what == "hasty") {
    const std::vector<std::byte> data(std::stoul(rest));
    for (int i = what == "late"; i < 2; ++i) {
      const auto first =
          co_await when_any(c.reply(data), sleep_for(what == "late" ? 500ms : 1ms));
      given_up += !std::get<0>(first);
    }
  }
  const bool is_stubborn = what == "stubborn";
  if (what == "count" || what == "tick" || what == "late" || is_stubborn) {
    const int count = what == "late" ? 50 : std::stoi(rest);
    for (int i = 0; i < count; ++i) {
      const std::string number = std::to_string(i);
      if (is_stubborn) co_await shield(c.reply(number));
      if (!is_stubborn) co_await c.reply(number);
      ++replies;
      if (what == "tick") co_await sleep_for(10ms);
    }
  }
  if (what == "first" || what == "pair" || what == "hasty") co_await c.reply(what);
  if (what == "big" || what == "pair") {
    const std::vector<std::byte> data(std::stoul(rest));
    co_await c.reply(data);
  }
  if (what == "hold" || what == "first") {
    event never;
    co_await never;
  }
  if (what == "throw") throw std::runtime_error("no such model");
  if (what == "busy") throw world_error(failure(cause::overloaded, "no blocks left"));
}

}  // namespace manyworlds::dispatch_tests
