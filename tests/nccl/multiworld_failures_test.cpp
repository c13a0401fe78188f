// The acceptance cases in which members die, stop or block, B1 to B3, B8 to B10 and B12,
// on device memory.
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <future>
#include <optional>
#include <vector>

#include "other_processes.hpp"
#include "support/footprint.hpp"

using namespace manyworlds;
using namespace manyworlds::nccl_tests;

namespace {

using floats = std::vector<float>;

// --- a message that is half received

constexpr std::size_t large = std::size_t{8} << 20;
constexpr float canary = -5;

/// An element of device memory while a kernel writes it: the emulation's memory is this
/// process's own.
std::optional<float> peek(device_buffer<float>& x, std::size_t element) {
  float value = 0;
  const iovec into{&value, sizeof value};
  const iovec there{x.data() + element, sizeof value};
  const bool got = ::process_vm_readv(::getpid(), &into, 1, &there, 1, 0) == sizeof value;
  return got ? std::optional(value) : std::nullopt;
}

/// The sender, process 1, sends large messages until the world ends.
task<void> send_large(member& m) {
  world w(m.rt, m.st, impatient(on_gpu(m, "half", 1, 2)));
  co_await w;
  auto x = co_await m.on_device(ramp(large, 1));
  failure why;
  while (!why) why = co_await failure_of(w.send(x, to{0}));
  // It was stopped and is told so: the rank is its own.
  CHECK(why.cause == cause::silent_peer);
  CHECK(why.rank == 1);
}

/// Receives from it until it is stopped in the midst of a message.
class half_received {
 public:
  half_received(member& m, other_processes& others)
      : member_(m),
        others_(others),
        world_(m.rt, m.st, impatient(on_gpu(m, "half", 0, 2))),
        stream_(m.device),
        buffer_(m.pool, large, stream_) {}

  /// Calls `then` when the sender is stopped, and gives how the receive ended.
  template <class Then>
  task<failure> run(Then then) {
    co_await world_;
    failure why;
    bool is_cut = false;
    const auto take = [&]() -> task<void> {
      why = co_await failure_of(world_.recv(buffer_, from{1}));
      is_over_ = true;
      // Law 4: the buffer is the caller's again, at once.
      if (why) co_await fill();
    };
    const auto cut = [&]() -> task<void> {
      is_cut = co_await stop_at_a_quarter();
      if (is_cut) then();
    };
    // A fast machine may be through before the sender can be stopped.
    for (int attempt = 0; attempt < 20 && !is_cut; ++attempt) {
      co_await fill();
      is_over_ = false;
      co_await when_all(take(), cut());
    }
    REQUIRE(is_cut);
    co_return why;
  }
  [[nodiscard]] auto drained() { return world_.drained(); }
  [[nodiscard]] task<bool> is_filled() {
    const floats found = co_await member_.read(buffer_);
    co_return found == canaries_;
  }

 private:
  /// On a stream that does not wait for the message.
  task<void> fill() { co_await copy(buffer_.view(member_.stream), canaries_); }
  /// False if all of the message has come.
  task<bool> stop_at_a_quarter() {
    while (!is_over_ && peek(buffer_, large / 4) == canary) co_await yield();
    others_.stop(1);
    // What it had sent before may still be on its way here.
    for (int i = 0; i < 100; ++i) co_await sleep_for(100us);
    if (!is_over_ && peek(buffer_, large - 1) == canary) co_return true;
    others_.go_on(1);
    co_return false;
  }

  member& member_;
  other_processes& others_;
  const floats canaries_ = floats(large, canary);
  bool is_over_ = false;
  world world_;
  const owned_stream stream_;
  device_buffer<float> buffer_;
};

bool skips_without_peeking() {
  if (testing::skips_without_device() || testing::is_emulated()) return false;
  MESSAGE("skipped: a GPU does not show how much of a message has come");
  return true;
}

task<void> lose_half_a_message(member& m, other_processes& others) {
  others.start(1);
  half_received half(m, others);
  const auto kill = [&] { others.kill(1); };
  const failure why = co_await half.run(kill);
  check_death(why, 1);
  CHECK(why.operation == operation_kind::receive);
  co_await half.drained();
  CHECK(co_await half.is_filled());
}

/// Process 2 shares another world with the leader, on the same devices.
world_options of_beside(const member& m) {
  return on_gpu(m, "beside", m.rank == 0 ? 0 : 1, 2);
}
task<void> add_until_closed(member& m) {
  world beside(m.rt, m.st, of_beside(m));
  co_await beside;
  auto x = co_await m.on_device(floats(1000, 1));
  auto y = co_await m.on_device(floats(1000));
  failure why;
  while (!why) why = co_await failure_of(beside.all_reduce(x, y, sum));
  CHECK(why.cause == cause::closed);
}
task<void> add_beside(member& m, world& beside) {
  auto x = co_await m.on_device(floats(1000, 2));
  auto y = co_await m.on_device(floats(1000));
  co_await beside.all_reduce(x, y, sum);
  CHECK((co_await m.read(y)) == floats(1000, 3));
}

/// On a thread of its own, as an application would call it.
cudaError_t wait_for_device(int device) {
  const auto wait = [device] {
    auto* choose = testing::find_in_cudart<cudaError_t(int)>("cudaSetDevice");
    auto* synchronize = testing::find_in_cudart<cudaError_t()>("cudaDeviceSynchronize");
    const cudaError_t chosen = choose(device);
    return chosen == cudaSuccess ? synchronize() : chosen;
  };
  return std::async(std::launch::async, wait).get();
}

task<void> stop_the_sender(member& m, other_processes& others) {
  others.start_all();
  world beside(m.rt, m.st, of_beside(m));
  co_await beside;
  co_await add_beside(m, beside);
  half_received half(m, others);
  const failure why = co_await half.run([] {});
  CHECK(why.cause == cause::silent_peer);
  CHECK(why.rank == 1);
  // The sender goes on in the midst of the message, and has ended when the buffer is
  // looked at.
  others.go_on(1);
  co_await told(m, "late one has ended");
  CHECK(co_await half.is_filled());
  co_await half.drained();
  co_await add_beside(m, beside);
  co_await beside.leave();
  CHECK(wait_for_device(m.device) == cudaSuccess);
  CHECK(co_await half.is_filled());
}
task<void> be_late_or_beside(member& m) {
  if (m.rank == 2) return add_until_closed(m);
  const auto late = [](member& m) -> task<void> {
    co_await send_large(m);
    co_await tell(m, "late one has ended");
  };
  return late(m);
}

// --- a world that has broken

/// Every operation there is, each with what it ends with.
task<std::vector<failure>> try_all(member& m, world& w, device_stream stream) {
  device_buffer<float> x(m.pool, 8, stream);
  device_buffer<float> wide(m.pool, 16, stream);
  int word = 0;
  const auto nothing = [](ncclComm*, CUstream_st*) {};
  std::vector<failure> all;
  all.push_back(co_await failure_of(w.send(x, to{1})));
  all.push_back(co_await failure_of(w.recv(x, from{1})));
  all.push_back(co_await failure_of(w.recv(x, any)));
  all.push_back(co_await failure_of(w.send(x, to{1}).unmatched()));
  all.push_back(co_await failure_of(w.all_reduce(x, sum).unmatched().enqueue()));
  all.push_back(co_await failure_of(w.broadcast(x, root{1})));
  all.push_back(co_await failure_of(w.all_reduce(x, sum)));
  all.push_back(co_await failure_of(w.reduce(x, sum, root{0})));
  all.push_back(co_await failure_of(w.all_gather(x, wide)));
  all.push_back(co_await failure_of(w.gather(x, wide, root{0})));
  all.push_back(co_await failure_of(w.scatter(wide, x, root{0})));
  all.push_back(co_await failure_of(w.reduce_scatter(wide, x, sum)));
  all.push_back(co_await failure_of(w.send_message(word, x, to{1})));
  all.push_back(co_await failure_of(w.recv(std::span(&word, 1), from{1})));
  all.push_back(co_await failure_of(w.barrier()));
  all.push_back(co_await failure_of(w.native(nothing)));
  all.push_back(co_await failure_of(w.device_ready()));
  co_return all;
}

task<void> use_after_break(member& m, other_processes& others) {
  others.start(1);
  world w(m.rt, m.st, on_gpu(m, "gone", 0, 2));
  const owned_stream stream(m.device);
  // A world that there is not is another error than one that has broken.
  for (const failure& why : co_await try_all(m, w, stream)) {
    CAPTURE(why.text());
    CHECK(why.cause == cause::not_formed);
  }
  co_await w;
  auto x = co_await m.on_device(floats(8, 1));
  const ticket before = co_await w.all_reduce(x, sum).enqueue();
  co_await w.settled(before);
  others.kill(1);
  const failure first = co_await w.broken();
  check_death(first, 1);
  CHECK(first.peer.pid == others.pid(1));
  std::vector<failure> all = co_await within(try_all(m, w, stream), 10s);
  all.push_back(co_await failure_of(w.settled(before)));
  for (const failure& why : all) {
    check_death(why, first.rank);
    CHECK(why.peer.pid == first.peer.pid);
    CHECK(why.epoch == first.epoch);
  }
  co_await w.drained();
  CHECK((co_await m.read(x)) == floats(8, 3));
  // And so is none at all.
  world none;
  CHECK_THROWS_AS((void)none.epoch(), world_error);
}
task<void> add_once(member& m) {
  world w(m.rt, m.st, on_gpu(m, "gone", 1, 2));
  co_await w;
  auto x = co_await m.on_device(floats(8, 2));
  co_await w.all_reduce(x, sum);
  co_await w.broken();
}

// --- a reactor that is blocked

/// Process 1 blocks its thread for longer than the silence that breaks a world, and has a
/// world with the leader and one with process 2, which is killed meanwhile.
struct blocked_application {
  static duration span() {
    return takes_long() ? 10 * silence_limit : silence_limit * 3 / 2;
  }

  static task<void> lead(member& m, other_processes& others) {
    others.start_all();
    world healthy(m.rt, m.st, impatient(on_gpu(m, "healthy", 0, 2)));
    co_await healthy;
    auto x = co_await m.on_device(floats(1000, 1));
    co_await healthy.all_reduce(x, sum);
    co_await told(m, "blocks");
    others.kill(2);
    bool is_blocked = true;
    const auto waits = [&]() -> task<void> {
      co_await healthy.all_reduce(x, sum);
      CHECK_FALSE(is_blocked);
    };
    const auto unblocks = [&]() -> task<void> {
      // The time is the subject.
      co_await sleep_for(span());
      CHECK(healthy.state() == world_state::up);
      is_blocked = false;
      testing::put(others.line(1), "", 1);
    };
    co_await when_all(waits(), unblocks());
    CHECK((co_await m.read(x)) == floats(1000, 5));
    co_await healthy.leave();
  }

  static task<void> follow(member& m) {
    world doomed(m.rt, m.st, impatient(on_gpu(m, "doomed", m.rank - 1, 2)));
    if (m.rank == 2) {
      co_await doomed;
      co_await doomed.device_ready();
      co_await doomed.broken();
      co_return;
    }
    world healthy(m.rt, m.st, impatient(on_gpu(m, "healthy", 1, 2)));
    co_await healthy;
    co_await doomed;
    auto x = co_await m.on_device(floats(1000, 2));
    auto y = co_await m.on_device(floats(1000, 7));
    co_await healthy.all_reduce(x, sum);
    co_await doomed.device_ready();
    const auto fails = [&]() -> task<void> {
      check_death(co_await failure_of(doomed.recv(y, from{1})), 1);
    };
    const auto blocks = [&]() -> task<void> {
      co_await tell(m, "blocks");
      char word = 0;
      testing::take(testing::own_process::line_in_process, &word, 1);
    };
    co_await when_all(fails(), blocks());
    CHECK(healthy.state() == world_state::up);
    const floats twos(1000, 2);
    co_await copy(x.view(), twos);
    co_await healthy.all_reduce(x, sum);
    CHECK((co_await m.read(x)) == floats(1000, 5));
    co_await doomed.drained();
    co_await healthy.leave();
  }
};

// --- a name that is formed again and again

struct made_anew {
  /// By then what is made once has been made.
  static constexpr std::uint64_t warm_after = 5;

  static task<void> lead(member& m, other_processes& others) {
    const std::uint64_t times = takes_long() ? 100 : 12;
    others.start(1);
    world w(m.rt, m.st, on_gpu(m, "again", 0, 2));
    co_await w;
    auto x = co_await m.on_device(floats(1000));
    testing::footprint warm;
    for (std::uint64_t i = 1; i <= times; ++i) {
      CHECK(w.epoch() == i);
      const floats ones(1000, 1);
      co_await copy(x.view(), ones);
      co_await w.all_reduce(x, sum);
      CHECK((co_await m.read(x)) == floats(1000, 3));
      const pid_t pid = others.pid(1);
      others.kill(1);
      const failure why = co_await w.broken();
      check_death(why, 1);
      CHECK(why.peer.pid == pid);
      CHECK(why.epoch == i);
      co_await w.drained();
      if (i == warm_after) warm = testing::footprint();
      if (i == times) break;
      others.start(1);
      w = co_await w.reform();
    }
    co_await within(until_no_more_than(warm), 20s);
    CHECK(testing::footprint().resident_bytes <
          warm.resident_bytes + (std::size_t{32} << 20));
  }
  /// A communicator is freed, and a helper thread ends, after its world is drained.
  static task<void> until_no_more_than(const testing::footprint& warm) {
    for (testing::footprint now;
         now.descriptors > warm.descriptors || now.threads > warm.threads;
         now = testing::footprint()) {
      co_await sleep_for(5ms);
    }
  }

  static task<void> follow(member& m) {
    world w(m.rt, m.st, on_gpu(m, "again", 1, 2));
    co_await w;
    auto x = co_await m.on_device(floats(1000, 2));
    co_await w.all_reduce(x, sum);
    co_await w.broken();
  }
};

// --- a member that dies as it joins

/// Process 1 dies at each of its stages in turn, and another takes its place. Process 2
/// has another world with the leader.
class dies_as_it_joins {
 public:
  dies_as_it_joins(member& m, other_processes& others) : member_(m), others_(others) {}

  task<void> run() {
    others_.start(2);
    world beside(member_.rt, member_.st, of_beside(member_));
    co_await beside;
    bool is_done = false;
    const auto add = [&]() -> task<void> {
      while (!is_done) co_await add_beside(member_, beside);
    };
    const auto try_stages = [&]() -> task<void> {
      for (const char* stage : {"never", "joining", "formed", "ready"}) {
        co_await fail(stage);
        co_await succeed();
      }
      is_done = true;
    };
    co_await when_all(add(), try_stages());
    CHECK(beside.state() == world_state::up);
    co_await beside.leave();
  }

  static task<void> follow(member& m) {
    if (m.rank == 2) return add_until_closed(m);
    return join(m);
  }

 private:
  world_options options(duration limit) const {
    world_options o = on_gpu(member_, "joined", 0, 2);
    o.form = limit;
    return o;
  }

  /// The world of the latter two is formed, however long a busy machine takes for it.
  static duration limit_of(const std::string& stage) {
    if (stage == "never") return 500ms;
    return stage == "joining" ? duration(1s) : duration(20s);
  }
  /// Its death is an error by the deadline: of the forming, or of the world.
  task<void> fail(const std::string& stage) {
    if (stage != "never") others_.start(1, stage);
    if (stage == "formed" || stage == "ready") others_.expect_death(1);
    world w(member_.rt, member_.st, options(limit_of(stage)));
    const auto kill = [&]() -> task<void> {
      if (stage != "joining") co_return;
      co_await told(member_, stage);
      others_.kill(1);
    };
    failure why;
    const auto form = [&]() -> task<void> {
      const auto formed = co_await outcome(w);
      why = formed.error();
      if (formed) why = co_await w.broken();
    };
    co_await within(when_all(form(), kill()), 20s);
    CAPTURE(stage);
    CAPTURE(why.text());
    const std::array possible{cause::not_joined, cause::peer_died,
                              cause::connection_lost};
    CHECK(std::find(possible.begin(), possible.end(), why.cause) != possible.end());
    CHECK(why.rank == 1);
    if (stage == "never") CHECK(why.cause == cause::not_joined);
    if (stage == "formed" || stage == "ready") CHECK(why.cause == cause::peer_died);
  }
  task<void> succeed() {
    others_.start(1, "stays");
    world w(member_.rt, member_.st, options(20s));
    co_await w;
    auto x = co_await member_.on_device(floats(1000, 1));
    co_await w.all_reduce(x, sum);
    CHECK((co_await member_.read(x)) == floats(1000, 3));
    co_await w.leave();
  }

  static task<void> join(member& m) {
    const std::string stage = part_here();
    world w(m.rt, m.st, on_gpu(m, "joined", 1, 2));
    if (stage == "joining") co_await tell(m, stage);
    co_await w;
    if (stage == "formed") ::raise(SIGKILL);
    co_await w.device_ready();
    if (stage == "ready") ::raise(SIGKILL);
    if (stage == "joining") co_await w.broken();
    auto x = co_await m.on_device(floats(1000, 2));
    co_await w.all_reduce(x, sum);
    co_await w.leave();
  }

  member& member_;
  other_processes& others_;
};

// --- a member that is stopped and goes on

/// Process 1 is stopped amid its messages, process 2 takes its place in the next epoch,
/// and process 1 goes on beside it.
struct stopped_member {
  static constexpr std::size_t count = 1000;

  static world_options options(const member& m, rank_t rank) {
    world_options o = impatient(on_gpu(m, "same", rank, 2));
    o.form = 20s;
    return o;
  }

  static task<void> lead(member& m, other_processes& others) {
    others.start(1);
    world w(m.rt, m.st, options(m, 0));
    co_await w;
    auto x = co_await m.on_device(floats(count));
    failure why;
    for (int n = 0; !why; ++n) {
      why = co_await failure_of(w.recv(x, from{1}));
      if (!why) CHECK((co_await m.read(x)) == floats(count, 1));
      if (n == 20) others.stop(1);
    }
    CHECK(why.cause == cause::silent_peer);
    CHECK(why.rank == 1);
    CHECK(why.peer.pid == others.pid(1));

    others.start(2);
    w = co_await w.reform();
    CHECK(w.epoch() == 2);
    CHECK(w.view().member(1).identity.pid == others.pid(2));
    others.go_on(1);
    bool is_over = false;
    const auto hear = [&]() -> task<void> {
      co_await told(m, "stale one has ended");
      is_over = true;
    };
    const auto take = [&]() -> task<void> {
      for (std::uint64_t n = 0; n < 100 || !is_over; ++n) {
        const message_info came = co_await w.recv(x, from{1});
        CHECK(came.user.value() == n);
        CHECK((co_await m.read(x)) == floats(count, 2));
      }
    };
    co_await when_all(hear(), take());
    CHECK(w.state() == world_state::up);
    co_await w.leave();
  }

  static task<void> follow(member& m) {
    world_options own = options(m, 1);
    if (m.rank == 1) own.form = 1s;
    world w(m.rt, m.st, own);
    co_await w;
    auto x = co_await m.on_device(floats(count, static_cast<float>(m.rank)));
    failure why;
    for (std::uint64_t n = 0; !why; ++n) {
      why = co_await failure_of(w.send(x, to{0}, {}, user_word(n)));
    }
    if (m.rank == 2) {
      CHECK(why.cause == cause::closed);
    } else {
      co_await be_stale(m, w, x, why);
    }
  }

  /// It learns that it was the silent one, and that its place is taken.
  static task<void> be_stale(member& m, world& w, device_buffer<float>& x, failure why) {
    CHECK(why.cause == cause::silent_peer);
    CHECK(why.rank == 1);
    CHECK(w.epoch() == 1);
    const failure again = co_await failure_of(w.send(x, to{0}));
    CHECK(again.cause == cause::silent_peer);
    const auto joined = co_await outcome(w.reform());
    REQUIRE_FALSE(joined);
    CHECK(joined.error().cause == cause::rank_taken);
    co_await tell(m, "stale one has ended");
  }
};

}  // namespace

TEST_SUITE("multiworld") {
  TEST_CASE("B1: a large receive is an error when its sender dies with half of it sent") {
    if (skips_without_peeking()) return;
    run_processes(1, lose_half_a_message, send_large);
  }

  TEST_CASE(
      "B2: every operation on a broken world fails at once with the first cause, and on "
      "one that was not formed with another") {
    run_processes(1, use_after_break, add_once);
  }

  TEST_CASE(
      "B3: a peer stopped amid a message touches nothing of it when it goes on, and "
      "another world on the device works") {
    if (skips_without_peeking()) return;
    run_processes(2, stop_the_sender, be_late_or_beside);
  }

  TEST_CASE(
      "B8: an application that blocks its thread while one of its worlds breaks keeps "
      "the other") {
    run_processes(2, blocked_application::lead, blocked_application::follow);
  }

  TEST_CASE(
      "B9: a world is formed anew at once when its worker is killed, and nothing grows") {
    run_processes(1, made_anew::lead, made_anew::follow);
  }

  TEST_CASE(
      "B10: a member that dies before, as or after it joins is an error by the deadline, "
      "and the next one gets in") {
    // A creation that not all members came to keeps its root.
    testing::keeps_roots = true;
    const auto lead = [](member& m, other_processes& others) -> task<void> {
      dies_as_it_joins all(m, others);
      co_await all.run();
    };
    run_processes(2, lead, dies_as_it_joins::follow);
  }

  TEST_CASE(
      "B12: a stopped member is out after the silence limit, and when it goes on it "
      "learns so and reaches nothing of the next epoch") {
    run_processes(2, stopped_member::lead, stopped_member::follow);
  }
}
