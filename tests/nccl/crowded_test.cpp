// Many worlds on the same GPUs, with few hardware connections: their operations end
// whatever order the members start them in.
#include <signal.h>

#include <list>
#include <optional>
#include <semaphore>

#include "gpu_worlds.hpp"
#include "other_processes.hpp"
#include "support/kept_log.hpp"

using namespace manyworlds;
using namespace manyworlds::nccl_tests;

namespace {

using floats = std::vector<float>;

/// False in the process that has so few connections, where the test is to go on. How many
/// there are is read once a process; the second name is the real library's.
bool runs_with_connections(int connections) {
  if (testing::skips_without_device()) return true;
  if (testing::own_process::is_here()) return false;
  const std::string number = std::to_string(connections);
  testing::own_process alone(
      doctest::getContextOptions()->currentTest->m_name,
      {"EMULATED_CUDA_CONNECTIONS=" + number, "CUDA_DEVICE_MAX_CONNECTIONS=" + number});
  CHECK(alone.succeeded());
  return true;
}

world_options numbered(world_options options, int number) {
  options.name = world_name(("crowded " + std::to_string(number)).c_str());
  options.on_device.most_multiprocessors = 1;
  return options;
}

/// Whether the runtime's dump says that the world has places in its GPU's order.
bool has_places(const member& m, const world& w) {
  const std::string all = m.rt.dump();
  const auto begin = all.find("\n  " + w.name().str() + "@");
  REQUIRE_MESSAGE(begin != all.npos, all);
  const std::string own = all.substr(begin, all.find("\n  crowded", begin + 1) - begin);
  REQUIRE_MESSAGE(own.find("on device") != own.npos, all);
  return own.find("places held in the order") != own.npos;
}

/// Sums and messages in turn, each checked. Members of equal number start together.
task<void> use(member& m, world& w, device_stream stream, int rounds) {
  const int others = w.size() - 1;
  device_buffer<float> given(m.pool, 64, stream);
  device_buffer<float> into(m.pool, 64, stream);
  const floats ones(64, 1);
  co_await copy(given.view(), ones);
  for (int i = 0; i < rounds; ++i) {
    co_await w.all_reduce(given, into, sum);
    CHECK((co_await m.read(into)) == floats(64, static_cast<float>(others + 1)));
    if (m.rank > 1) continue;
    co_await when_all(w.send(given, to{1 - m.rank}), w.recv(into, from{1 - m.rank}));
    CHECK((co_await m.read(into)) == ones);
  }
}

/// All worlds busy at once; the ranks begin with opposite ends of the list.
task<void> use_all(member& m, world_options options, int count, int rounds) {
  std::list<owned_stream> streams;
  std::vector<world> worlds;
  for (int i = 0; i < count; ++i) {
    streams.emplace_back(m.device);
    worlds.emplace_back(m.rt, m.st, numbered(options, i));
  }
  for (world& w : worlds) co_await w;
  for (world& w : worlds) co_await w.device_ready();
  co_await scope::run([&](scope& s) -> task<void> {
    auto stream = streams.begin();
    for (int i = 0; i < count; ++i, ++stream) {
      const int chosen = m.rank == 0 ? i : count - 1 - i;
      s.spawn(use(m, worlds[static_cast<std::size_t>(chosen)], *stream, rounds));
    }
    co_return;
  });
  for (world& w : worlds) CHECK(has_places(m, w));
  for (world& w : worlds) {
    co_await w.barrier();
    co_await w.leave();
  }
}

/// One that is formed, used, and broken or left, again and again, beside the others.
task<void> come_and_go(member& m, world_options options, int number, int times) {
  for (int i = 0; i < times; ++i) {
    world w(m.rt, m.st, numbered(options, 100 * number + i));
    co_await w;
    const owned_stream stream(m.device);
    const auto once = [&]() -> task<void> { co_await use(m, w, stream, 2); };
    co_await once();
    if (i % 2 == 0) {
      co_await w.leave();
      continue;
    }
    auto met = co_await outcome(w.barrier());
    CHECK((met || w.state() == world_state::broken));
    if (m.rank == 0) w.fail("enough");
    co_await w.drained();
  }
}

task<void> use_while_others_come(member& m, world_options options) {
  world steady(m.rt, m.st, numbered(options, 0));
  co_await steady;
  const owned_stream stream(m.device);
  co_await scope::run([&](scope& s) -> task<void> {
    s.spawn(use(m, steady, stream, 30));
    for (int i = 1; i <= 3; ++i) s.spawn(come_and_go(m, options, i, 3));
    co_return;
  });
  co_await steady.leave();
}

/// Rank 0 alone launches its sum, which therefore does not end, maybe beside a world of
/// its own.
task<void> stall(member& m, world_options options, bool in_company) {
  std::optional<world> beside;
  if (in_company && m.rank == 0) {
    world_options of_one = numbered(options, 2);
    of_one.size = 1;
    beside.emplace(m.rt, m.st, of_one);
    co_await *beside;
    co_await beside->device_ready();
  }
  world_options hurt = numbered(options, 1);
  hurt.collective_log = 300ms;
  hurt.collective_break = 600ms;
  world w(m.rt, m.st, hurt);
  co_await w;
  auto x = co_await m.on_device(floats(64, 1));
  co_await w.device_ready();
  if (m.rank == 0) (void)co_await w.all_reduce(x, sum).unmatched().enqueue();
  const failure why = co_await w.broken();
  CHECK(why.cause == cause::stalled);
  CHECK((why.detail.find("CUDA_DEVICE_MAX_CONNECTIONS=32") != why.detail.npos) ==
        in_company);
  co_await w.drained();
  if (beside) co_await beside->leave();
}

/// Rank 1 of the first world is stuck in user code when its promise is asked for: rank 0
/// goes on with its other world, of which rank 2 is the other member.
struct stuck_reactor {
  std::binary_semaphore is_stuck{0};
  std::binary_semaphore may_go_on{0};
  static constexpr lane words{1};

  task<void> lead(member& m, world& with_stuck, world& other) {
    const owned_stream stream(m.device);
    // What is taken may be launched already, and holds up its stream.
    const owned_stream beside(m.device);
    device_buffer<float> into(m.pool, 64, stream);
    const auto take = [&]() -> task<void> { co_await with_stuck.recv(into, from{1}); };
    const auto go_on = [&]() -> task<void> {
      // What is taken above has come, so its place is asked for by now: promised here, it
      // holds up this GPU until it is retracted.
      co_await with_two(m, other, beside, 5);
      may_go_on.release();
    };
    co_await take();
    co_await with_stuck.recv_message<int>(from{1}, words);
    REQUIRE(is_stuck.try_acquire_for(20s));
    co_await when_all(take(), go_on());
    CHECK((co_await m.read(into)) == floats(64, 3));
  }

  task<void> be_stuck(member& m, world& w) {
    auto given = co_await m.on_device(floats(64, 3));
    const auto give = [&]() -> task<void> { co_await w.send(given, to{0}); };
    const auto stand_still = [&]() -> task<void> {
      // Behind the announcement of what is given, on the same connection.
      const int word = 7;
      co_await w.send_message(word, to{0}, words);
      is_stuck.release();
      CHECK(may_go_on.try_acquire_for(20s));
    };
    // The first time its view is checked, which takes longer than a word.
    co_await give();
    co_await when_all(give(), stand_still());
  }

  static task<void> with_two(member& m, world& w, device_stream stream, int rounds) {
    device_buffer<float> given(m.pool, 64, stream);
    device_buffer<float> into(m.pool, 64, stream);
    for (int i = 0; i < rounds; ++i) co_await w.all_reduce(given, into, sum);
  }
};

/// Rank 1 is a member of all worlds: of the first, in the midst of which the other member
/// will be killed or stopped, and of those with rank 2, which are to serve throughout.
class beside_a_fault {
 public:
  beside_a_fault(int victim_rank, int signal, int others)
      : victim_(victim_rank), signal_(signal), others_(others) {}

  task<void> run(member& m, world_options options) {
    world_options hurt = numbered(options, 1);
    // Of who is killed the connection tells.
    if (signal_ == SIGSTOP) {
      hurt.suspect_after = 300ms;
      hurt.broken_after = 1s;
    }
    hurt.size = 2;
    hurt.rank = m.rank == 0 ? victim_ : 1 - victim_;
    if (m.rank == 0) return be_victim(m, hurt);
    if (m.rank == 2) return serve_all(m, options);
    return survive(m, hurt, options);
  }

 private:
  task<void> be_victim(member& m, world_options hurt) {
    world w(m.rt, m.st, hurt);
    co_await w;
    co_await m.st.set("victim", std::to_string(::getpid()));
    const owned_stream stream(m.device);
    co_await stuck_reactor::with_two(m, w, stream, 1'000'000);
  }

  static world_options whole(const member& m, const world_options& options, int number) {
    world_options all = numbered(options, 2 + number);
    all.size = 2;
    all.rank = m.rank - 1;
    return all;
  }

  task<void> serve_all(member& m, world_options options) {
    co_await scope::run([&](scope& s) -> task<void> {
      for (int i = 0; i < others_; ++i) s.spawn(serve(m, whole(m, options, i)));
      co_return;
    });
  }

  static task<void> serve(member& m, world_options whole) {
    world w(m.rt, m.st, whole);
    co_await w;
    const owned_stream stream(m.device);
    // Until the other one leaves.
    const auto busy = [&]() -> task<void> {
      co_await stuck_reactor::with_two(m, w, stream, 1'000'000);
    };
    const auto ended = co_await outcome(busy());
    REQUIRE_FALSE(ended);
    CHECK(ended.error().cause == cause::closed);
  }

  task<void> survive(member& m, world_options hurt, world_options options) {
    world first(m.rt, m.st, hurt);
    std::vector<world> others;
    std::list<owned_stream> streams;
    for (int i = 0; i < others_; ++i) {
      others.emplace_back(m.rt, m.st, whole(m, options, i));
      streams.emplace_back(m.device);
    }
    co_await first;
    for (world& w : others) co_await w;
    const owned_stream stream(m.device);
    const auto use_others = [&]() -> task<void> {
      co_await scope::run([&](scope& s) -> task<void> {
        auto each = streams.begin();
        for (world& w : others) s.spawn(stuck_reactor::with_two(m, w, *each++, 20));
        co_return;
      });
    };
    const pid_t victim = std::stoi(co_await m.st.get("victim", patience));
    co_await scope::run([&](scope& s) -> task<void> {
      const auto until_broken = [&]() -> task<void> {
        const auto busy = [&]() -> task<void> {
          co_await stuck_reactor::with_two(m, first, stream, 1'000'000);
        };
        const auto ended = co_await outcome(busy());
        REQUIRE_FALSE(ended);
        CHECK(ended.error().cause ==
              (signal_ == SIGKILL ? cause::peer_died : cause::silent_peer));
      };
      s.spawn(until_broken());
      co_await use_others();
      ::kill(victim, signal_);
      co_await first.broken();
      co_await use_others();
    });
    co_await first.drained();
    ::kill(victim, SIGKILL);
    for (world& w : others) co_await w.leave();
  }

  const int victim_;
  const int signal_;
  const int others_;
};

/// The first rank's process is killed: it need not succeed.
void check_beside_a_fault(int victim_rank, int signal, int others = 1,
                          const char* connections = nullptr) {
  if (testing::skips_without_device()) return;
  beside_a_fault fault(victim_rank, signal, others);
  const member_body body = [&](member& m, world_options options) -> task<void> {
    co_await fault.run(m, options);
  };
  if (rank_process::here()) return run_members(3, body);
  runtime rt;
  const hosted_store meeting(rt, "127.0.0.1:0");
  std::vector<std::unique_ptr<testing::own_process>> all;
  std::vector<std::string> environment;
  if (connections) {
    environment.push_back(std::string("EMULATED_CUDA_CONNECTIONS=") + connections);
    environment.push_back(std::string("CUDA_DEVICE_MAX_CONNECTIONS=") + connections);
  }
  for (int rank = 0; rank < 3; ++rank) {
    all.push_back(start_rank(rank, 3, meeting, environment));
  }
  CHECK(all[1]->succeeded());
  CHECK(all[2]->succeeded());
}

/// The kernels of six worlds stand behind each other in one connection when the other
/// member of all of them is killed.
struct behind_each_other {
  static constexpr int count = 6;

  struct place {
    place(member& m, int number, rank_t rank)
        : w(m.rt, m.st, on_gpu(m, "behind " + std::to_string(number), rank, 2)),
          stream(m.device),
          x(m.pool, 64, stream) {}

    task<void> form() {
      co_await w;
      co_await w.all_reduce(x, sum);
    }

    world w;
    const owned_stream stream;
    device_buffer<float> x;
    ticket hung;
  };

  static task<void> lead(member& m, other_processes& others) {
    // In the order in which the worlds were made, and will break, and against it.
    for (const bool is_reversed : {false, true}) {
      others.start(1);
      std::list<place> all;
      for (int i = 0; i < count; ++i) all.emplace_back(m, i, 0);
      for (place& p : all) co_await p.form();
      if (is_reversed) all.reverse();
      for (place& p : all) {
        p.hung = co_await p.w.all_reduce(p.x, sum).unmatched().enqueue();
      }
      others.kill(1);
      for (place& p : all) {
        check_death(co_await failure_of(p.w.settled(p.hung)), 1);
        const floats fives(64, 5);
        co_await copy(p.x.view(m.stream), fives);
      }
      for (place& p : all) co_await p.w.drained();
      for (place& p : all) CHECK((co_await m.read(p.x)) == floats(64, 5));
    }
  }

  static task<void> follow(member& m) {
    std::list<place> all;
    for (int i = 0; i < count; ++i) all.emplace_back(m, i, 1);
    for (place& p : all) co_await p.form();
    for (place& p : all) (void)co_await p.w.broken();
  }
};

}  // namespace

TEST_SUITE("crowded gpu") {
  TEST_CASE("a world that is alone on its GPUs has no places and gets them in company") {
    NEEDS_DEVICES(2);
    run_members(2, [](member& m, world_options options) -> task<void> {
      world first(m.rt, m.st, numbered(options, 1));
      co_await first;
      const owned_stream stream(m.device);
      co_await use(m, first, stream, 3);
      CHECK_FALSE(has_places(m, first));
      {
        world second(m.rt, m.st, numbered(options, 2));
        co_await second;
        co_await use(m, second, stream, 3);
        co_await use(m, first, stream, 3);
        CHECK(has_places(m, second));
        CHECK(has_places(m, first));
        co_await second.barrier();
        co_await second.leave();
      }
      // Until its next epoch.
      co_await use(m, first, stream, 3);
      CHECK(has_places(m, first));
      co_await first.barrier();
      co_await first.leave();
    });
  }

  TEST_CASE(
      "law 9: an operation that does not end names the connections, if worlds share "
      "them") {
    NEEDS_DEVICES(2);
    for (const bool in_company : {true, false}) {
      CAPTURE(in_company);
      run_members(2, [&](member& m, world_options options) -> task<void> {
        co_await stall(m, options, in_company);
      });
    }
  }

  TEST_CASE("six worlds end on one connection in whatever order members start") {
    if (runs_with_connections(1)) return;
    NEEDS_DEVICES(2);
    run_members(2, [](member& m, world_options options) -> task<void> {
      co_await use_all(m, options, 6, 5);
    });
  }

  TEST_CASE("sixteen worlds end on eight connections in whatever order members start") {
    if (runs_with_connections(8)) return;
    NEEDS_DEVICES(2);
    run_members(2, [](member& m, world_options options) -> task<void> {
      co_await use_all(m, options, 16, 3);
    });
  }

  TEST_CASE(
      "a world says once in its log that unmatched operations may wait for other worlds' "
      "where these are more than the connections") {
    if (runs_with_connections(1)) return;
    NEEDS_DEVICES(2);
    testing::kept_log lines;
    runtime_options how;
    how.log = &lines;
    const auto meet = [](member& m, world_options options) -> task<void> {
      world first(m.rt, m.st, numbered(options, 1));
      co_await first;
      world second(m.rt, m.st, numbered(options, 2));
      co_await second;
      // Connecting is an operation too: the sums come behind it at both members, or one
      // would launch them before it, and both would wait as the log says.
      co_await second.device_ready();
      device_buffer<float> x(m.pool, 4, m.stream);
      for (int i = 0; i < 3; ++i) co_await first.all_reduce(x, sum).unmatched();
      co_await second.barrier();
      co_await second.leave();
      co_await first.leave();
    };
    run_members(2, meet, {}, how);
    const int members_here = rank_process::here() ? 1 : 2;
    CHECK(lines.count("2 worlds share the 1 connections of device") == members_here);
    CHECK(lines.count("CUDA_DEVICE_MAX_CONNECTIONS=32") == members_here);
  }

  TEST_CASE("four worlds of three members end on one connection") {
    if (runs_with_connections(1)) return;
    NEEDS_DEVICES(3);
    run_members(3, [](member& m, world_options options) -> task<void> {
      co_await use_all(m, options, 4, 5);
    });
  }

  TEST_CASE("worlds end on one connection where the reactor launches") {
    if (runs_with_connections(1)) return;
    NEEDS_DEVICES(2);
    world_options base;
    base.on_device.launch = launch_on::reactor;
    run_members(
        2,
        [](member& m, world_options options) -> task<void> {
          co_await use_all(m, options, 4, 5);
        },
        base);
  }

  TEST_CASE("worlds that come and break and go hold up none on one connection") {
    if (runs_with_connections(1)) return;
    NEEDS_DEVICES(2);
    run_members(2, use_while_others_come);
  }

  TEST_CASE("a member that is stuck in user code does not hold up a peer's other world") {
    NEEDS_OWN_DEVICES(3);
    stuck_reactor stuck;
    run_members(3, [&](member& m, world_options options) -> task<void> {
      world_options first = numbered(options, 1);
      first.size = 2;
      world_options second = numbered(options, 2);
      second.size = 2;
      second.rank = m.rank == 0 ? 0 : 1;
      if (m.rank == 2) {
        world other(m.rt, m.st, second);
        co_await other;
        const owned_stream stream(m.device);
        co_await stuck_reactor::with_two(m, other, stream, 5);
        co_await other.leave();
        co_return;
      }
      world with_stuck(m.rt, m.st, first);
      co_await with_stuck;
      if (m.rank == 1) {
        co_await with_stuck.device_ready();
        co_await with_stuck.barrier();
        co_await stuck.be_stuck(m, with_stuck);
      } else {
        world other(m.rt, m.st, second);
        co_await other;
        co_await other.device_ready();
        co_await with_stuck.barrier();
        co_await stuck.lead(m, with_stuck, other);
        co_await other.leave();
      }
      co_await with_stuck.leave();
    });
  }

  TEST_CASE("rank 0 that is killed amid its proposals breaks its world and no other") {
    check_beside_a_fault(0, SIGKILL);
  }

  TEST_CASE("a member that is killed amid its promises breaks its world and no other") {
    check_beside_a_fault(1, SIGKILL);
  }

  TEST_CASE("rank 0 that is stopped amid its proposals breaks its world and no other") {
    check_beside_a_fault(0, SIGSTOP);
  }

  TEST_CASE(
      "law 4: worlds with kernels that stand behind each other in one connection all "
      "give their buffers back when their member is killed") {
    if (runs_with_connections(1)) return;
    run_processes(1, behind_each_other::lead, behind_each_other::follow);
  }

  TEST_CASE(
      "law 2: of sixteen worlds on eight connections one breaks, and fifteen go on") {
    check_beside_a_fault(1, SIGKILL, 15, "8");
  }
}
