// The acceptance cases in which members live, B4 to B7, B11, B13 and B14, on device
// memory.
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <list>
#include <stop_token>

#include "other_processes.hpp"
#include "support/sanitizers.hpp"

using namespace manyworlds;
using namespace manyworlds::nccl_tests;

namespace {

using floats = std::vector<float>;

/// No healthy world of these tests is held up for so long.
constexpr duration no_stall = 5s;

/// Sends a message to the other member of a world of two and takes it back.
class round_trips {
 public:
  round_trips(member& m, world& w)
      : member_(m),
        world_(w),
        stream_(m.device),
        out_(m.pool, count, stream_),
        in_(m.pool, count, stream_) {}

  task<void> go() {
    const auto begun = clock::now();
    const floats values = ramp(count, static_cast<float>(++trips_));
    co_await copy(out_.view(), values);
    const rank_t peer = 1 - world_.rank();
    co_await when_all(world_.send(out_, to{peer}), world_.recv(in_, from{peer}));
    CHECK((co_await member_.read(in_)) == values);
    longest_ = std::max<duration>(longest_, clock::now() - begun);
  }
  [[nodiscard]] duration longest() const noexcept { return longest_; }

 private:
  static constexpr std::size_t count = 1000;

  member& member_;
  world& world_;
  const owned_stream stream_;
  device_buffer<float> out_;
  device_buffer<float> in_;
  int trips_ = 0;
  duration longest_{0};
};

/// Sends back what comes, until the other member leaves.
task<void> send_back(member& m, world& w) {
  const owned_stream stream(m.device);
  device_buffer<float> x(m.pool, 1000, stream);
  const rank_t peer = 1 - w.rank();
  failure why;
  while (!why) {
    why = co_await failure_of(w.recv(x, from{peer}));
    if (!why) why = co_await failure_of(w.send(x, to{peer}));
  }
  CAPTURE(why.text());
  CHECK(why.cause == cause::closed);
}
task<void> form_and_send_back(member& m, world_options options) {
  world w(m.rt, m.st, std::move(options));
  co_await w;
  co_await send_back(m, w);
}

// --- B4

struct many_sends {
  static std::size_t sends() { return takes_long() ? 10'000 : 500; }

  static task<void> send_all(member& m) {
    world w(m.rt, m.st, on_gpu(m, "order", 1, 2));
    co_await w;
    auto all = co_await m.on_device(testing::counting(sends()));
    const auto send_one = [&](std::size_t n) -> task<void> {
      co_await w.send(all.slice(n, 1), to{0}, {}, user_word(n));
    };
    co_await scope::run([&](scope& s) -> task<void> {
      for (std::size_t n = 0; n < sends(); ++n) s.spawn(send_one(n));
      co_return;
    });
    co_await w.leave();
  }

  static task<void> take_all(member& m, other_processes& others) {
    others.start(1);
    world w(m.rt, m.st, on_gpu(m, "order", 0, 2));
    co_await w;
    auto all = co_await m.on_device(floats(sends(), -1));
    std::size_t in_order = 0;
    for (std::size_t n = 0; n < sends(); ++n) {
      const message_info came = co_await w.recv(all.slice(n, 1), from{1});
      in_order += came.user.value() == n;
    }
    CHECK(in_order == sends());
    CHECK((co_await m.read(all)) == testing::counting(sends()));
    co_await w.leave();
  }
};

// --- B5

struct cancelled_receives {
  static task<void> lead(member& m, other_processes& others) {
    others.start(1);
    world one(m.rt, m.st, on_gpu(m, "one", 0, 2));
    world two(m.rt, m.st, on_gpu(m, "two", 0, 2));
    co_await one;
    co_await two;
    round_trips in_one(m, one);
    round_trips in_two(m, two);
    co_await in_two.go();
    bool is_over = false;
    const auto cancel_all = [&]() -> task<void> {
      for (int i = 0; i < 100; ++i) co_await cancel_one(m, one);
      is_over = true;
    };
    const auto go_on = [&]() -> task<void> {
      while (!is_over) co_await in_two.go();
      co_await in_two.go();
    };
    co_await when_all(cancel_all(), go_on());
    CHECK(in_two.longest() < no_stall);
    // Giving up is not failing: the world is up, and no message is lost.
    CHECK(one.state() == world_state::up);
    for (int i = 0; i < 3; ++i) co_await in_one.go();
    co_await one.leave();
    co_await two.leave();
  }

  static task<void> cancel_one(member& m, world& w) {
    device_buffer<float> x(m.pool, 1000, m.stream);
    std::stop_source stop;
    const auto receive = [&]() -> task<void> {
      const auto ended = co_await outcome(w.recv(x, from{1}).stop(stop.get_token()));
      REQUIRE_FALSE(ended);
      CHECK(ended.error().cause == cause::cancelled);
    };
    const auto give_up = [&]() -> task<void> {
      co_await yield();
      co_await yield();
      stop.request_stop();
    };
    co_await when_all(receive(), give_up());
  }

  static task<void> follow(member& m) {
    co_await when_all(form_and_send_back(m, on_gpu(m, "one", 1, 2)),
                      form_and_send_back(m, on_gpu(m, "two", 1, 2)));
  }
};

// --- B6

/// Process 1, with a world of its own, and process 3, which hosts a store, are stopped.
/// Process 2 has two worlds with the leader, one formed through that store.
struct stopped_peers {
  static duration span() { return takes_long() ? 10 * silence_limit : 2 * silence_limit; }
  static world_options pair(const member& m, const char* name) {
    return impatient(on_gpu(m, name, m.rank == 0 ? 0 : 1, 2));
  }

  static task<void> lead(member& m, other_processes& others) {
    others.start_all();
    tcp_store second(m.rt, co_await m.st.get("second store", patience));
    world stuck(m.rt, m.st, pair(m, "stuck"));
    world near(m.rt, m.st, pair(m, "near"));
    world far(m.rt, second, pair(m, "far"));
    co_await stuck;
    co_await near;
    co_await far;
    round_trips in_near(m, near);
    round_trips in_far(m, far);
    auto x = co_await m.on_device(floats(1000, 1));
    co_await in_near.go();
    co_await in_far.go();
    others.stop(1);
    others.stop(3);
    bool is_over = false;
    const auto hangs = [&]() -> task<void> {
      const failure why = co_await failure_of(stuck.all_reduce(x, sum));
      CHECK(why.cause == cause::silent_peer);
      CHECK(why.rank == 1);
    };
    const auto cannot_form = [&]() -> task<void> {
      world_options options = pair(m, "not possible");
      options.form = span() / 2;
      world w(m.rt, second, options);
      const auto formed = co_await outcome(w);
      REQUIRE_FALSE(formed);
      CHECK(formed.error().cause == cause::store_unreachable);
    };
    const auto go_on = [&](round_trips& trips) -> task<void> {
      while (!is_over) co_await trips.go();
    };
    const auto last = [&]() -> task<void> {
      // The time is the subject.
      co_await sleep_for(span());
      is_over = true;
    };
    co_await when_all(hangs(), cannot_form(), go_on(in_near), go_on(in_far), last());
    for (world* w : {&near, &far}) CHECK(w->state() == world_state::up);
    CHECK(in_near.longest() < no_stall);
    CHECK(in_far.longest() < no_stall);
    others.kill(1);
    others.go_on(3);
    co_await near.leave();
    co_await far.leave();
    co_await tell(m, "it is over");
  }

  static task<void> follow(member& m) {
    if (m.rank == 3) {
      const hosted_store second(m.rt, "127.0.0.1:0");
      co_await m.st.set("second store", second.address());
      co_await told(m, "it is over");
    } else if (m.rank == 1) {
      co_await form_and_send_back(m, pair(m, "stuck"));
    } else {
      tcp_store second(m.rt, co_await m.st.get("second store", patience));
      world far(m.rt, second, pair(m, "far"));
      const auto of_far = [&]() -> task<void> {
        co_await far;
        co_await send_back(m, far);
      };
      co_await when_all(form_and_send_back(m, pair(m, "near")), of_far());
    }
  }
};

// --- B7 and B13

/// Sixty-four worlds of two, formed at once.
class sixty_four {
 public:
  static constexpr std::size_t count = 64;

  explicit sixty_four(member& m) : member_(m) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::string name = "number " + std::to_string(i);
      worlds_.emplace_back(m.rt, m.st, on_gpu(m, name, m.rank, 2));
    }
  }

  /// Runs `body(world, number)` in all of them at once.
  template <class Body>
  task<void> in_all(Body body) {
    co_await scope::run([&](scope& s) -> task<void> {
      std::size_t number = 0;
      for (world& w : worlds_) s.spawn(body(w, number++));
      co_return;
    });
  }
  task<void> form() {
    co_await in_all([](world& w, std::size_t) -> task<void> {
      co_await w;
      co_await w.device_ready();
    });
  }
  /// Each sums something else.
  task<void> add() {
    floats mine(count);
    floats sums(count);
    for (std::size_t i = 0; i < count; ++i) {
      mine[i] = static_cast<float>(i + static_cast<std::size_t>(member_.rank) * 100);
      sums[i] = static_cast<float>(2 * i + 100);
    }
    auto x = co_await member_.on_device(mine);
    const auto add_one = [&](world& w, std::size_t i) -> task<void> {
      co_await w.all_reduce(x.slice(i, 1), sum);
    };
    co_await in_all(add_one);
    CHECK((co_await member_.read(x)) == sums);
  }
  task<void> leave() {
    for (world& w : worlds_) CHECK(w.state() != world_state::broken);
    co_await in_all([](world& w, std::size_t) -> task<void> { co_await w.leave(); });
  }

 private:
  member& member_;
  std::list<world> worlds_;
};

task<void> join_all_at_once(member& m) {
  sixty_four all(m);
  const auto begun = clock::now();
  co_await all.form();
  const auto took = clock::now() - begun;
  if (m.rank == 0) {
    MESSAGE("64 worlds formed in ",
            std::chrono::duration_cast<std::chrono::milliseconds>(took).count(), " ms");
  }
  co_await all.add();
  co_await all.leave();
}

duration cpu_time() {
  rusage used{};
  REQUIRE(::getrusage(RUSAGE_SELF, &used) == 0);
  const auto of = [](const timeval& t) {
    return std::chrono::seconds(t.tv_sec) + std::chrono::microseconds(t.tv_usec);
  };
  return of(used.ru_utime) + of(used.ru_stime);
}

/// Both members park receives on sixteen lanes of each world, look how much time of a CPU
/// passes, and then receive something on one lane of each.
struct parked_receives {
  static constexpr std::size_t lanes = 16;

  static task<void> park(member& m) {
    sixty_four all(m);
    co_await all.form();
    co_await all.add();
    auto given = co_await m.on_device(testing::counting(sixty_four::count));
    auto taken = co_await m.on_device(floats(sixty_four::count * lanes, -1));
    std::size_t came = 0;
    const auto park_one = [&](world& w, std::size_t place) -> task<void> {
      co_await w.recv(taken.slice(place, 1), from{1 - m.rank}, lane(place % lanes));
      ++came;
    };
    const auto park_in = [&](world& w, std::size_t number) -> task<void> {
      co_await scope::run([&](scope& s) -> task<void> {
        for (std::size_t i = 1; i < lanes; ++i) {
          s.spawn(park_one(w, number * lanes + i));
        }
        co_await park_one(w, number * lanes);
        s.cancel();
      });
    };
    const auto give = [&](world& w, std::size_t number) -> task<void> {
      co_await w.send(given.slice(number, 1), to{1 - m.rank});
    };
    const auto measure_and_give = [&]() -> task<void> {
      co_await meet(m, "parked");
      co_await measure();
      co_await meet(m, "measured");
      co_await all.in_all(give);
    };
    co_await when_all(all.in_all(park_in), measure_and_give());
    CHECK(came == sixty_four::count);
    floats expected(sixty_four::count * lanes, -1);
    for (std::size_t i = 0; i < sixty_four::count; ++i) {
      expected[i * lanes] = static_cast<float>(i);
    }
    CHECK((co_await m.read(taken)) == expected);
    // A leave would end what the other one still has parked.
    co_await meet(m, "done");
    co_await all.leave();
  }

  static task<void> meet(member& m, std::string where) {
    co_await tell(m, std::to_string(m.rank) + where);
    co_await told(m, std::to_string(1 - m.rank) + where);
  }
  static task<void> measure() {
    const duration before = cpu_time();
    const auto begun = clock::now();
    // The time is the subject.
    co_await sleep_for(takes_long() ? 10s : 1s);
    const std::chrono::duration<double> used = cpu_time() - before;
    const std::chrono::duration<double> passed = clock::now() - begun;
    MESSAGE("a thousand parked receives: ", used / passed * 100, " % of a CPU");
    // Under a sanitizer, on a machine that compiles beside, it was 0.15.
    if (!testing::has_address_sanitizer && !testing::has_thread_sanitizer)
      CHECK(used / passed < 0.1);
  }
};

// --- B11

/// Worlds with a first message that goes either way, its receive posted long before it or
/// long after.
struct first_message {
  struct way {
    const char* name;
    rank_t receiver;
    bool is_receive_first;
  };
  static constexpr std::array ways{
      way{"to 0, received first", 0, true}, way{"to 1, received first", 1, true},
      way{"to 0, sent first", 0, false}, way{"to 1, sent first", 1, false}};

  static task<void> all(member& m) {
    co_await scope::run([&](scope& s) -> task<void> {
      for (const way& each : ways) s.spawn(one(m, each));
      co_return;
    });
  }

  static task<void> one(member& m, const way& how) {
    world w(m.rt, m.st, on_gpu(m, how.name, m.rank, 2));
    co_await w;
    const owned_stream stream(m.device);
    device_buffer<float> x(m.pool, 1000, stream);
    const floats values = ramp(1000, m.rank == how.receiver ? 0 : 5);
    co_await copy(x.view(), values);
    const bool receives = m.rank == how.receiver;
    if (receives == how.is_receive_first) {
      const auto post = [&]() -> task<void> { co_await take_part(w, x, receives); };
      const auto say = [&]() -> task<void> {
        // The time is the subject.
        co_await sleep_for(takes_long() ? 10s : 300ms);
        co_await tell(m, how.name);
      };
      co_await when_all(post(), say());
    } else {
      co_await told(m, how.name);
      const auto begun = clock::now();
      co_await take_part(w, x, receives);
      CHECK(clock::now() - begun < no_stall);
    }
    CHECK((co_await m.read(x)) == ramp(1000, 5));
    co_await w.leave();
  }
  static task<void> take_part(world& w, device_buffer<float>& x, bool receives) {
    if (receives) {
      co_await w.recv(x, from{1 - w.rank()});
    } else {
      co_await w.send(x, to{1 - w.rank()});
    }
  }
};

// --- B14

/// Of three members rank 1 leaves with messages under way to rank 0.
struct leaving_member {
  static constexpr int messages = 20;
  static constexpr std::size_t count = 1000;

  static task<void> be_member(member& m) {
    world w(m.rt, m.st, on_gpu(m, "left", m.rank, 3));
    co_await w;
    co_await w.device_ready();
    if (m.rank == 1) {
      co_await send_and_leave(m, w);
    } else {
      co_await stay(m, w);
    }
    CHECK(w.state() == world_state::closed);
    CHECK(w.failure().cause == cause::closed);
  }

  static task<void> send_and_leave(member& m, world& w) {
    std::vector<device_buffer<float>> all;
    for (int n = 0; n < messages; ++n) {
      all.push_back(co_await m.on_device(ramp(count, static_cast<float>(n))));
    }
    const auto send_one = [&](int n) -> task<void> {
      co_await w.send(all[static_cast<std::size_t>(n)], to{0});
    };
    co_await scope::run([&](scope& s) -> task<void> {
      for (int n = 0; n < messages; ++n) s.spawn(send_one(n));
      co_await yield();
      co_await yield();
      co_await tell(m, "leaves");
      const auto begun = clock::now();
      co_await w.leave();
      // No time was waited for: the shortest is the drain's.
      CHECK(clock::now() - begun < world_options().drain);
    });
  }

  static task<void> stay(member& m, world& w) {
    auto x = co_await m.on_device(floats(count, -1));
    auto y = co_await m.on_device(floats(count, 1));
    const auto closes = [](const failure& why) {
      CAPTURE(why.text());
      CHECK(why.cause == cause::closed);
      CHECK(why.rank == 1);
      CHECK(why.text().find("rank 1 has left") != std::string::npos);
    };
    const auto waits = [&]() -> task<void> {
      for (int n = 0; m.rank == 0 && n < messages; ++n) {
        co_await w.recv(x, from{1});
        CHECK((co_await m.read(x)) == ramp(count, static_cast<float>(n)));
      }
      closes(co_await failure_of(w.recv(x, from{1})));
    };
    co_await told(m, "leaves");
    co_await waits();
    closes(co_await failure_of(w.all_reduce(y, sum)));
    // Those that stay go on with each other.
    CHECK(w.state() == world_state::up);
    if (m.rank == 0) {
      co_await w.send(y, to{2});
    } else {
      co_await w.recv(x, from{0});
      CHECK((co_await m.read(x)) == floats(count, 1));
    }
    co_await w.leave();
  }
};

/// All processes do the same.
void run_alike(int others, const other_part& part) {
  const auto lead = [&](member& m, other_processes& all) -> task<void> {
    all.start_all();
    co_await part(m);
  };
  run_processes(others, lead, part);
}

}  // namespace

TEST_SUITE("multiworld") {
  TEST_CASE("B4: hundreds of sends at once arrive in the order they were started") {
    run_processes(1, many_sends::take_all, many_sends::send_all);
  }

  TEST_CASE("B5: cancelled receives disturb neither their own world nor another") {
    run_processes(1, cancelled_receives::lead, cancelled_receives::follow);
  }

  TEST_CASE(
      "B6: while a peer and a store are stopped other worlds stay healthy for longer "
      "than "
      "a silence may last") {
    run_processes(3, stopped_peers::lead, stopped_peers::follow);
  }

  TEST_CASE("B7: sixty-four worlds of two that are joined at once are all usable") {
    run_alike(1, join_all_at_once);
  }

  TEST_CASE(
      "B11: the first message may go either way, and be posted long before or after its "
      "receive") {
    run_alike(1, first_message::all);
  }

  TEST_CASE("B13: a thousand parked receives in sixty-four worlds cost no CPU") {
    run_alike(1, parked_receives::park);
  }

  TEST_CASE(
      "B14: a member that leaves delivers what it sent, and to the others it is closed "
      "and not broken") {
    run_alike(2, leaving_member::be_member);
  }
}
