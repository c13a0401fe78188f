// The acceptance cases that are MultiWorld's own examples, A1 to A4 and A9, on device
// memory and with killed processes.
#include <algorithm>
#include <memory>
#include <optional>

#include "other_processes.hpp"

using namespace manyworlds;
using namespace manyworlds::nccl_tests;

namespace {

constexpr std::size_t streamed = 5000;

std::vector<float> message_number(int n) { return ramp(streamed, static_cast<float>(n)); }

/// Rank 1 of a world of two: sends numbered messages until it cannot.
task<failure> send_numbered(member& m, world& w) {
  auto x = co_await m.on_device(std::vector<float>(streamed));
  for (int n = 0;; ++n) {
    const auto values = message_number(n);
    co_await copy(x.view(), values);
    const auto number = user_word(static_cast<std::uint64_t>(n));
    const auto sent = co_await outcome(w.send(x, to{0}, {}, number));
    if (!sent) co_return sent.error();
  }
}

/// Messages that have come from rank 1 of a world, all whole and in order.
class numbered_messages {
 public:
  numbered_messages(member& m, world& w)
      : member_(m), world_(w), stream_(m.device), buffer_(m.pool, streamed, stream_) {}

  /// Gives the failure if there is no next one.
  task<failure> take() {
    const auto begun = clock::now();
    const auto came = co_await outcome(world_.recv(buffer_, from{1}));
    if (!came) co_return came.error();
    CHECK(came->user.value() == static_cast<std::uint64_t>(count_));
    CHECK((co_await member_.read(buffer_)) == message_number(count_));
    longest_gap_ = std::max<duration>(longest_gap_, clock::now() - begun);
    if (++count_ == under_way) is_under_way.set();
    co_return failure();
  }
  [[nodiscard]] int count() const noexcept { return count_; }
  [[nodiscard]] duration longest_gap() const noexcept { return longest_gap_; }

  event is_under_way;

 private:
  static constexpr int under_way = 20;

  member& member_;
  world& world_;
  const owned_stream stream_;
  device_buffer<float> buffer_;
  int count_ = 0;
  duration longest_gap_{0};
};

/// The leader of two worlds of two. Their other members send numbered messages.
struct leader_of_two {
  leader_of_two(member& m, other_processes& others)
      : others(others),
        one(m.rt, m.st, on_gpu(m, "one", 0, 2)),
        two(m.rt, m.st, on_gpu(m, "two", 0, 2)),
        of_one(m, one),
        of_two(m, two) {
    others.start_all();
  }

  task<void> form() {
    co_await one;
    co_await two;
  }
  /// The killed sender is named, and the other world goes on.
  task<void> finish(failure why) {
    check_death(why, 1);
    CHECK(why.peer.pid == others.pid(1));
    CHECK(why.world == world_name("one"));
    CHECK(one.state() == world_state::broken);
    for (int i = 0; i < 20; ++i) check_success(co_await of_two.take());
    CHECK(two.state() == world_state::up);
    CHECK(of_two.longest_gap() < 5s);
    co_await two.leave();
  }

  other_processes& others;
  world one;
  world two;
  numbered_messages of_one;
  numbered_messages of_two;
};

task<void> send_to_leader(member& m) {
  world w(m.rt, m.st, on_gpu(m, m.rank == 1 ? "one" : "two", 1, 2));
  co_await w;
  const failure why = co_await send_numbered(m, w);
  CHECK(why.cause == cause::closed);
}

task<void> lead_side_by_side(member& m, other_processes& others) {
  leader_of_two leads(m, others);
  co_await leads.form();
  failure why;
  bool is_over = false;
  const auto serve_one = [&]() -> task<void> {
    while (!why) why = co_await leads.of_one.take();
    is_over = true;
  };
  const auto serve_two = [&]() -> task<void> {
    while (!is_over) check_success(co_await leads.of_two.take());
  };
  const auto kill = [&]() -> task<void> {
    co_await leads.of_one.is_under_way;
    co_await leads.of_two.is_under_way;
    others.kill(1);
  };
  co_await when_all(serve_one(), serve_two(), kill());
  co_await leads.finish(why);
}

task<void> lead_in_turn(member& m, other_processes& others) {
  leader_of_two leads(m, others);
  co_await leads.form();
  failure why;
  for (int turn = 0; !why; ++turn) {
    why = co_await leads.of_one.take();
    check_success(co_await leads.of_two.take());
    if (turn == 20) others.kill(1);
  }
  co_await leads.finish(why);
}

/// Process 1 leads two worlds; this process and process 2 work in one of them each.
struct killed_leader {
  static task<void> be_leader(member& m) {
    world one(m.rt, m.st, on_gpu(m, "one", 0, 2));
    world two(m.rt, m.st, on_gpu(m, "two", 0, 2));
    co_await one;
    co_await two;
    for (world* w : {&one, &two}) {
      auto x = co_await m.on_device(ramp(1000, 1));
      co_await w->all_reduce(x, sum);
    }
    co_await two.broken();
  }

  /// Waits for the leader in two ways: in NCCL's kernel, and not yet launched.
  static task<void> work(member& m, const char* name, pid_t leader) {
    world w(m.rt, m.st, on_gpu(m, name, 1, 2));
    co_await w;
    auto x = co_await m.on_device(ramp(1000, 2));
    auto y = co_await m.on_device(ramp(1000, 0));
    co_await w.all_reduce(x, sum);
    CHECK((co_await m.read(x))[7] == 8 + 9);
    const ticket hung = co_await w.all_reduce(x, sum).unmatched().enqueue();
    const auto parked = [&]() -> task<void> {
      check_death(co_await failure_of(w.recv(y, from{0})), 0);
    };
    const auto launched = [&]() -> task<void> {
      co_await tell(m, std::string(name) + " waits");
      check_death(co_await failure_of(w.settled(hung)), 0);
    };
    co_await when_all(parked(), launched());
    if (leader != 0) CHECK(w.failure().peer.pid == leader);
    check_death(co_await failure_of(w.barrier()), 0);
    co_await w.drained();
    CHECK((co_await m.read(y)) == ramp(1000, 0));
  }

  static task<void> direct(member& m, other_processes& others) {
    others.start_all();
    const auto kill = [&]() -> task<void> {
      co_await told(m, "one waits");
      co_await told(m, "two waits");
      others.kill(1);
    };
    co_await when_all(work(m, "one", others.pid(1)), kill());
  }

  static task<void> follow(member& m) {
    if (m.rank == 1) return be_leader(m);
    return work(m, "two", 0);
  }
};

/// Three members of one world, of which the last will be killed.
struct single_world {
  static constexpr rank_t victim = 2;

  static task<void> follow(member& m) {
    world w(m.rt, m.st, on_gpu(m, "all", m.rank, 3));
    co_await w;
    auto x = co_await m.on_device(ramp(1000, 1));
    co_await w.all_reduce(x, sum);
    if (m.rank == victim) {
      co_await w.broken();
    } else {
      co_await lose(m, w);
    }
  }

  static task<void> lead(member& m, other_processes& others) {
    others.start_all();
    const auto kill = [&]() -> task<void> {
      co_await told(m, "0 waits");
      co_await told(m, "1 waits");
      others.kill(victim);
    };
    co_await when_all(follow(m), kill());
  }

  /// With the victim, with the other survivor, and with both.
  static task<void> lose(member& m, world& w) {
    const rank_t survivor = 1 - m.rank;
    std::vector<device_buffer<float>> x;
    for (float i = 0; i < 4; ++i) x.push_back(co_await m.on_device(ramp(1000, i)));
    int failed = 0;
    const auto fails = [&](auto operation) -> task<void> {
      const failure why = co_await failure_of(std::move(operation));
      check_death(why, victim);
      ++failed;
    };
    const auto all_fail = [&]() -> task<void> {
      const auto said = [&]() -> task<void> {
        co_await yield();
        co_await tell(m, std::to_string(m.rank) + " waits");
      };
      co_await when_all(
          fails(w.recv(x[0], from{victim})), fails(w.send(x[1], to{victim})),
          fails(w.recv(x[2], from{survivor})), fails(w.all_reduce(x[3], sum)), said());
    };
    co_await all_fail();
    CHECK(failed == 4);
    // And none that comes later succeeds.
    co_await all_fail();
    CHECK(failed == 8);
    CHECK(w.state() == world_state::broken);
    co_await w.drained();
    CHECK((co_await m.read(x[0])) == ramp(1000, 0));
  }
};

// --- requests to workers

constexpr std::size_t image_size = 3000;
/// Of a round, half of them for each of two workers.
constexpr int requests = 12;

std::vector<float> image(int number) {
  return ramp(image_size, static_cast<float>(10 * number));
}
float class_of(const std::vector<float>& pixels) {
  float total = 0;
  for (std::size_t i = 0; i < pixels.size(); i += 100) total += pixels[i];
  return total;
}
/// Lanes of a world that the dispatcher does not use.
lane asks() { return lane(1); }
lane image_lane(int number) { return lane(static_cast<std::uint64_t>(2 + number)); }

world_options of_worker(const member& m, int worker, rank_t rank) {
  return on_gpu(m, "worker " + std::to_string(worker), rank, 2);
}

/// Answers with the class of the image, which it takes from the leader's device.
class image_worker {
 public:
  explicit image_worker(member& m) : member_(m) {}

  task<void> run() {
    call_server server([this](served_call& c) { return answer(c); });
    const auto serve = [&](world& w) -> task<void> {
      world_ = &w;
      co_await server.serve(w);
    };
    co_await keep(member_.rt, member_.st, of_worker(member_, member_.rank, 1), serve);
  }

 private:
  task<void> answer(served_call& c) {
    int number = 0;
    REQUIRE(c.data().size() == sizeof number);
    std::copy_n(c.data().data(), sizeof number, reinterpret_cast<std::byte*>(&number));
    co_await world_->send_message(number, to{0}, asks());
    const owned_stream stream(member_.device);
    device_buffer<float> x(member_.pool, image_size, stream);
    co_await world_->recv(x, from{0}, image_lane(number));
    const float found = class_of(co_await member_.read(x));
    if (part_here() == "keeps the second round" && number >= requests) {
      co_await tell(member_, "kept");
      co_await world_->broken();
    }
    co_await c.reply(std::span(&found, 1));
  }

  member& member_;
  world* world_ = nullptr;
};

class image_leader {
 public:
  image_leader(member& m, other_processes& others)
      : member_(m), others_(others), workers_(options()) {}

  task<void> run() {
    co_await scope::run([this](scope& s) -> task<void> {
      for (const int worker : {1, 2}) s.spawn(use(worker));
      co_await play();
    });
  }

 private:
  static dispatch_options options() {
    dispatch_options o;
    o.patience = 300ms;
    return o;
  }

  /// What happens to the workers.
  task<void> play() {
    others_.start(1, "keeps the second round");
    others_.start(2);
    co_await until_there_are(2);
    const auto kill = [&]() -> task<void> {
      co_await told(member_, "kept");
      others_.kill(1);
    };
    co_await ask_round(0);
    co_await when_all(ask_round(1), kill());
    CHECK(lost_ == 1);

    others_.kill(2);
    co_await until_there_are(0);
    const int number = 0;
    const auto none = co_await outcome(workers_.call(std::span(&number, 1)));
    REQUIRE_FALSE(none);
    CHECK(none.error().cause == cause::no_member_left);

    others_.start(1);
    others_.start(2);
    co_await until_there_are(2);
    co_await ask_round(0);
    CHECK(lost_ == 2);
    const auto all = workers_.workers();
    REQUIRE(all.size() == 2);
    for (const worker_status& each : all) {
      CHECK(each.epoch == 2);
      co_await workers_.drain(each.id);
    }
  }

  /// No event tells that a worker has been admitted, or is gone.
  task<void> until_there_are(std::size_t workers) {
    const auto look = [&]() -> task<void> {
      while (workers_.workers().size() != workers) co_await sleep_for(1ms);
    };
    co_await within(look(), 30s);
  }

  task<void> use(int worker) {
    const auto body = [this](world& w) -> task<void> {
      const auto serve = [&]() -> task<void> {
        (void)co_await when_any(workers_.serve(w), send_images(w));
      };
      const auto ended = co_await outcome(serve());
      if (ended) co_return;
      check_death(ended.error(), 1);
      ++lost_;
      throw world_error(ended.error());
    };
    co_await keep(member_.rt, member_.st, of_worker(member_, worker, 0), body);
  }

  task<void> send_images(world& w) {
    const owned_stream stream(member_.device);
    device_buffer<float> x(member_.pool, image_size, stream);
    for (;;) {
      const auto asked = co_await w.recv_message<int>(from{1}, asks());
      const auto pixels = image(asked.head);
      co_await copy(x.view(), pixels);
      co_await w.send(x, to{1}, image_lane(asked.head));
    }
  }

  task<void> ask_round(int round) {
    co_await scope::run([this, round](scope& s) -> task<void> {
      for (int i = 0; i < requests; ++i) s.spawn(ask(round * requests + i));
      co_return;
    });
  }
  task<void> ask(int number) {
    auto replies = co_await workers_.call(std::span(&number, 1));
    int answers = 0;
    while (const auto reply = co_await replies.next()) {
      float found = 0;
      REQUIRE(reply->size() == sizeof found);
      std::copy_n(reply->data(), sizeof found, reinterpret_cast<std::byte*>(&found));
      CHECK(found == class_of(image(number)));
      ++answers;
    }
    CHECK(answers == 1);
  }

  member& member_;
  other_processes& others_;
  dispatcher workers_;
  int lost_ = 0;
};

}  // namespace

TEST_SUITE("multiworld") {
  TEST_CASE(
      "A1: a killed sender ends its own world with one error, and the other's messages "
      "come whole and in order") {
    run_processes(2, lead_side_by_side, send_to_leader);
  }

  TEST_CASE(
      "A2: one coroutine that serves two worlds in turn goes on with the other when a "
      "sender is killed") {
    run_processes(2, lead_in_turn, send_to_leader);
  }

  TEST_CASE(
      "A3: when the leader of two worlds is killed, each worker has an error in its own "
      "and ends in order") {
    run_processes(2, killed_leader::direct, killed_leader::follow);
  }

  TEST_CASE(
      "A4: in one world of three a kill fails both survivors' pending and later "
      "operations") {
    run_processes(2, single_world::lead, single_world::follow);
  }

  TEST_CASE(
      "A9: requests of a killed worker are answered once by another, all dead is an "
      "error, and who comes again is served") {
    const auto lead = [](member& m, other_processes& others) -> task<void> {
      image_leader leads(m, others);
      co_await leads.run();
    };
    const auto follow = [](member& m) -> task<void> {
      image_worker works(m);
      co_await works.run();
    };
    run_processes(2, lead, follow);
  }
}
