// The TCP store under a simulated clock and network: no wait here costs time, and each
// seed is another order of events.
#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/store/memory_store.hpp"
#include "manyworlds/store/tcp_store.hpp"
#include "simulation/simulated_node.hpp"
#include "store/tcp_store_server.hpp"

using namespace manyworlds;
using namespace manyworlds_tests;
using namespace std::chrono_literals;

TEST_SUITE_BEGIN("tcp_store_simulation");

namespace {

constexpr std::uint64_t seeds = 60;
constexpr std::uint16_t port = 29500;

/// One process that hosts the store and may be killed, and a client on another.
struct hosted_store {
  explicit hosted_store(std::uint64_t seed) : sim(seed), user(sim, "user") {
    options.seed = seed;
  }
  ~hosted_store() {
    user.end();
    if (host) host->end();
  }

  void start_host() {
    host.emplace(sim,
                 first ? sim.add_process("host again", *first) : sim.add_process("host"));
    if (!first) first = &host->process();
    server.emplace(host->home(), host->process().address(port));
    host->spawn(server->serve());
  }
  void kill_host() {
    sim.kill(host->process());
    host->end();
    server.reset();
    host.reset();
  }
  [[nodiscard]] std::string endpoint() const { return first->address(port).text(); }

  /// Runs a task of the user's to its end.
  void run(task<void> body) {
    bool ended = false;
    const auto noting = [](task<void> body, bool& ended) -> task<void> {
      co_await std::move(body);
      ended = true;
    };
    user.spawn(noting(std::move(body), ended));
    const bool finished = sim.run_until([&] { return user.has_ended(); });
    INFO(sim.describe());
    REQUIRE(finished);
    user.check();
    REQUIRE(ended);
  }

  simulation sim;
  simulated_node user;
  simulated_process* first = nullptr;
  std::optional<simulated_node> host;
  std::optional<tcp_store_server> server;
  tcp_store_options options;
};

task<std::optional<store_error_kind>> how_it_ends(task<void> operation) {
  try {
    co_await std::move(operation);
  } catch (const store_error& e) {
    co_return e.kind();
  }
  co_return std::nullopt;
}

}  // namespace

namespace {

task<void> pump(stream& from, stream& to) {
  std::vector<std::byte> buffer(4096);
  for (;;) {
    const io_result got = co_await from.receive_some(buffer);
    if (!got.ok() || got.count() == 0) break;
    const io_result sent = co_await to.send_all(std::span(buffer).first(got.count()));
    if (!sent.ok()) break;
  }
  to.shut_down_sending();
}

task<void> pass_on(reactor& home, class socket accepted, socket_address server) {
  stream client(home, std::move(accepted));
  stream served;
  const io_result connected = co_await stream::connect(home, server, served);
  if (!connected.ok()) co_return;
  const auto both = [&](scope& s) -> task<void> {
    s.spawn(pump(client, served));
    s.spawn(pump(served, client));
    co_return;
  };
  co_await scope::run(both);
}

/// Accepts one connection at a time and takes that long for each, as a server does that
/// looks up the names of its peers.
struct slow_front {
  task<void> serve(simulated_node& at, socket_address server, duration each) {
    listener front(at.home(), at.process().address(slow_port));
    for (;;) {
      const io_result got = co_await front.accept();
      ++accepted;
      class socket taken(at.home().sockets(), got.handle());
      co_await sleep_for(each);
      at.spawn(pass_on(at.home(), std::move(taken), server));
    }
  }

  static constexpr std::uint16_t slow_port = 29501;
  int accepted = 0;
};

}  // namespace

TEST_CASE(
    "a server that takes 5 s to accept each connection: fifty waits end as keys are set, "
    "and none is dialled for twice; one for another key says that it was not set") {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    INFO("seed ", seed);
    hosted_store h(seed);
    h.start_host();
    slow_front front;
    h.host->spawn(front.serve(*h.host, h.host->process().address(port), 5s));
    tcp_store st(h.user.home(), h.first->address(slow_front::slow_port).text(),
                 h.options);
    constexpr int waits = 50;
    int ended = 0;
    std::optional<store_error_kind> missing;
    const auto waiting = [&](int i) -> task<void> {
      const std::string key = i % 3 == 0 ? "a" : "b";
      if (i % 2 == 0) {
        co_await st.wait({key}, 60s);
      } else {
        const std::string got = co_await st.get(key, 60s);
        CHECK(got == "here");
      }
      ++ended;
    };
    const auto in_vain = [&]() -> task<void> {
      missing = co_await how_it_ends(st.wait({"c"}, 30s));
    };
    const auto side_by_side = [&](scope& s) -> task<void> {
      for (int i = 0; i < waits; ++i) s.spawn(waiting(i));
      s.spawn(in_vain());
      co_await sleep_for(20s);
      for (const char* key : {"a", "b"}) co_await st.set(key, "here", 30s);
    };
    const auto all = [&]() -> task<void> { co_await scope::run(side_by_side); };
    h.run(all());
    CHECK(ended == waits);
    CHECK(missing == store_error_kind::timed_out);
    // Those in the backlog too.
    h.sim.run_for(300s);
    CHECK(front.accepted <= waits + 2);
    h.user.end();
  }
}

TEST_CASE("a client that keeps no idle connection: waits beside a slow server end, too") {
  hosted_store h(1);
  h.start_host();
  slow_front front;
  h.host->spawn(front.serve(*h.host, h.host->process().address(port), 1s));
  h.options.idle_connections = 0;
  tcp_store st(h.user.home(), h.first->address(slow_front::slow_port).text(), h.options);
  int ended = 0;
  const auto waiting = [&]() -> task<void> {
    co_await st.wait({"a"}, 120s);
    ++ended;
  };
  const auto side_by_side = [&](scope& s) -> task<void> {
    for (int i = 0; i < 6; ++i) s.spawn(waiting());
    co_await sleep_for(5s);
    co_await st.set("a", "here", 30s);
  };
  const auto all = [&]() -> task<void> { co_await scope::run(side_by_side); };
  h.run(all());
  CHECK(ended == 6);
  CHECK(front.accepted <= 8);
  h.user.end();
}

TEST_CASE("by seed: eight clients claim a key, count and wait for each other") {
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    INFO("seed ", seed);
    hosted_store h(seed);
    h.start_host();
    tcp_store st(h.user.home(), h.endpoint(), h.options);
    constexpr int clients = 8;
    int winners = 0;
    const auto client = [&](int i) -> task<void> {
      const std::string name = "client " + std::to_string(i);
      winners += co_await st.compare_set("leader", "", name) == name;
      if (co_await st.add("here", 1) == clients) co_await st.set("all", "here");
      co_await st.wait({"all", "leader"}, 60s);
    };
    const auto all = [&]() -> task<void> {
      co_await scope::run([&](scope& s) -> task<void> {
        for (int i = 0; i < clients; ++i) s.spawn(client, i);
        co_return;
      });
    };
    h.run(all());
    CHECK(winners == 1);
    h.user.end();
  }
}

TEST_CASE("two clients of an absent store pause each for itself; of one seed, alike") {
  const auto run = [](std::optional<std::uint64_t> seed) {
    simulation sim(1);
    simulated_node user(sim, "user");
    tcp_store_options options;
    options.seed = seed;
    tcp_store st(user.home(), user.process().address(port).text(), options);
    const auto body = [](tcp_store& st) -> task<void> {
      const auto in_vain = [](tcp_store& st) -> task<void> {
        (void)co_await st.try_get("key", 10s);
      };
      CHECK(co_await how_it_ends(in_vain(st)) == store_error_kind::unreachable);
    };
    user.spawn(body(st));
    REQUIRE(sim.run_until([&] { return user.has_ended(); }));
    return sim.fingerprint();
  };
  CHECK(run({}) != run({}));
  CHECK(run(7) == run(7));
}

TEST_CASE("by seed: a client that came before its server is served when that comes") {
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    INFO("seed ", seed);
    hosted_store h(seed);
    h.start_host();
    h.kill_host();
    tcp_store st(h.user.home(), h.endpoint(), h.options);
    h.sim.after(3s, [&] { h.start_host(); });
    const auto asking = [&]() -> task<void> {
      co_await st.set("k", "v", 10s);
      CHECK(co_await st.get("k", 10s) == "v");
    };
    h.run(asking());
    CHECK(h.sim.elapsed() < 6s);
    h.user.end();
  }
}

TEST_CASE(
    "by seed: a host killed at any step ends operations with an error or a successor's "
    "answer") {
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    INFO("seed ", seed);
    hosted_store h(seed);
    h.start_host();
    tcp_store st(h.user.home(), h.endpoint(), h.options);
    bool killed = false;
    h.sim.at_step(20 + seed * 7, [&] {
      killed = true;
      h.sim.kill(h.host->process());
    });
    const auto working = [&]() -> task<void> {
      int i = 0;
      while (!killed) {
        const auto end = co_await how_it_ends(st.set("k", std::to_string(i++), 2s));
        if (end) CHECK(*end == store_error_kind::unreachable);
        const auto waited = co_await how_it_ends(st.wait({"k", "never"}, 300ms));
        REQUIRE(waited.has_value());
        if (!killed) CHECK(*waited == store_error_kind::timed_out);
      }
    };
    h.run(working());
    h.kill_host();
    h.start_host();
    const auto after = [&]() -> task<void> {
      // The end of the old connections is known by then.
      co_await sleep_for(100ms);
      CHECK(co_await st.add("n", 1) == 1);
      CHECK(co_await st.try_get("k") == std::nullopt);
    };
    h.run(after());
    h.user.end();
  }
}

TEST_CASE("by seed: connections that died while idle cost no pause") {
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    INFO("seed ", seed);
    hosted_store h(seed);
    h.start_host();
    tcp_store_options options = h.options;
    options.first_pause = 10s;
    tcp_store st(h.user.home(), h.endpoint(), options);
    const auto crowd = [&]() -> task<void> {
      co_await scope::run([&](scope& s) -> task<void> {
        for (int i = 0; i < 4; ++i) s.spawn(st.set("k" + std::to_string(i), "v"));
        co_return;
      });
    };
    h.run(crowd());
    h.kill_host();
    h.start_host();
    const auto asking = [&]() -> task<void> { co_await st.set("k", "v", 5s); };
    h.run(asking());
    h.user.end();
  }
}

TEST_CASE(
    "by seed: behind a partition operations end at their limits, and go on when it "
    "heals") {
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    INFO("seed ", seed);
    hosted_store h(seed);
    h.start_host();
    tcp_store st(h.user.home(), h.endpoint(), h.options);
    std::optional<store_error_kind> set_end;
    std::optional<store_error_kind> wait_end;
    const auto cut_off = [&]() -> task<void> {
      co_await st.set("k", "v");
      h.sim.partition(h.user.process(), h.host->process());
      const duration before = h.sim.elapsed();
      set_end = co_await how_it_ends(st.set("k", "w", 3s));
      CHECK(h.sim.elapsed() - before <= 3s + 100ms);
      wait_end = co_await how_it_ends(st.wait({"never"}, 20s));
      CHECK(h.sim.elapsed() - before <= 23s + 200ms);
    };
    h.run(cut_off());
    CHECK(set_end == store_error_kind::unreachable);
    CHECK(wait_end == store_error_kind::unreachable);
    h.sim.heal(h.user.process(), h.host->process());
    const auto healed = [&]() -> task<void> {
      co_await st.set("k", "x", 30s);
      CHECK(co_await st.get("k", 5s) == "x");
    };
    h.run(healed());
    h.user.end();
  }
}

TEST_CASE("by seed: a connection that dies without a word does not hold up a wait") {
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    INFO("seed ", seed);
    hosted_store h(seed);
    h.start_host();
    tcp_store st(h.user.home(), h.endpoint(), h.options);
    const auto waiting = [&]() -> task<void> {
      h.sim.after(1s, [&] { h.sim.lose_link(h.user.process(), h.host->process()); });
      h.sim.after(2s, [&] { h.server->table().set("/late", "here"); });
      CHECK(co_await st.get("late", 60s) == "here");
    };
    h.run(waiting());
    CHECK(h.sim.elapsed() < 15s);
    h.user.end();
  }
}

TEST_CASE("by seed: with no descriptor left on either side operations wait for one") {
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    INFO("seed ", seed);
    hosted_store h(seed);
    h.start_host();
    tcp_store st(h.user.home(), h.endpoint(), h.options);
    h.host->process().limit_descriptors(h.host->process().open_sockets());
    h.user.process().limit_descriptors(h.user.process().open_sockets());
    h.sim.after(1s, [&] { h.user.process().limit_descriptors(100); });
    h.sim.after(2s, [&] { h.host->process().limit_descriptors(100); });
    const auto asking = [&]() -> task<void> { co_await st.set("k", "v", 30s); };
    h.run(asking());
    CHECK(h.sim.elapsed() >= 2s);
    h.user.end();
  }
}

TEST_CASE("by seed: processes of a simulation meet in a memory store") {
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    INFO("seed ", seed);
    simulation sim(seed);
    memory_store st;
    simulated_node a(sim, "a");
    simulated_node b(sim, "b");
    const auto pinging = [&]() -> task<void> {
      co_await st.set("ping", "1");
      CHECK(co_await st.get("pong", 10s) == "2");
    };
    const auto ponging = [&]() -> task<void> {
      CHECK(co_await st.get("ping", 10s) == "1");
      co_await sleep_for(1s);
      co_await st.set("pong", "2");
    };
    a.spawn(pinging());
    b.spawn(ponging());
    CHECK(sim.run_until([&] { return a.has_ended() && b.has_ended(); }));
    a.check();
    b.check();
    CHECK(sim.elapsed() >= 1s);
    a.end();
    b.end();
  }
}
