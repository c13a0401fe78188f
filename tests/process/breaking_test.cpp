// What a broken world means for its operations and their buffers, with peers killed and
// stopped.
#include <algorithm>

#include "process_fixture.hpp"

namespace manyworlds::process_tests {

TEST_SUITE_BEGIN("process");

namespace {

constexpr std::size_t large = std::size_t{64} << 20;

/// Receives a large message and calls `midway` on the reactor's thread when a quarter of
/// it has come: nothing more is taken from the connection before it returns.
template <class Midway>
task<failure> receive_until(world& w, std::vector<std::uint64_t>& buffer, Midway midway) {
  failure error;
  auto body = [&](scope& s) -> task<void> {
    auto receiving = [&]() -> task<void> {
      const auto got = co_await outcome(w.recv(buffer, from(1)));
      error = got.error();
    };
    s.spawn(receiving);
    while (buffer[buffer.size() / 4] == 0 && !error) co_await yield();
    midway();
  };
  co_await scope::run(body);
  co_return error;
}

/// Short limits: what is tested is what follows a silence.
const std::vector<std::string> impatient{"heartbeat=50", "suspect=300", "broken=1000"};
void make_impatient(leader& us) {
  us.patience.suspect_after = 300ms;
  us.patience.broken_after = 1s;
}

/// Is stopped when a quarter of its message has come; then canaries are in the buffer.
struct stopped_sender {
  stopped_sender(engine_kind e, const std::vector<std::string>& settings)
      : here(e), sender(here.worker("late", settings)), us(here, 50ms) {
    make_impatient(us);
    w = us.form("late");
    sender.order("stream late 0 " + std::to_string(large) + " 1");
    error = us.run(receive_until(w, buffer, [&] { sender.stop(); }));
    std::fill(buffer.begin(), buffer.end(), canary);
  }
  void check_untouched() {
    sender.expect("over late");
    CHECK(std::count(buffer.begin(), buffer.end(), canary) ==
          static_cast<std::ptrdiff_t>(buffer.size()));
    CHECK(sender.end() == 0);
  }

  static constexpr std::uint64_t canary = 0x0123456789abcdef;
  site here;
  process sender;
  std::vector<std::uint64_t> buffer = std::vector<std::uint64_t>(large / 8);
  failure error;
  leader us;
  world w;
};

}  // namespace

TEST_CASE("B1: a receive that is half done when the sender dies is an error") {
  for (const engine_kind e : engines()) {
    CAPTURE(name_of(e));
    site here(e);
    process sender = here.worker("half");
    std::vector<std::uint64_t> buffer(large / 8);
    leader us(here);
    world w = us.form("half");
    sender.order("stream half 0 " + std::to_string(large) + " 1");
    const failure error = us.run(receive_until(w, buffer, [&] { sender.send_kill(); }));
    CHECK(error.cause == cause::peer_died);
    CHECK(error.rank == 1);
    CHECK(error.operation == operation_kind::receive);
    // It was cut indeed.
    CHECK(buffer.back() == 0);
  }
}

TEST_CASE("B2: every operation on a broken world fails at once with the first cause") {
  for (const engine_kind e : engines()) {
    CAPTURE(name_of(e));
    site here(e);
    process peer = here.worker("gone");
    leader us(here);
    world w = us.form("gone");
    const pid_t pid = peer.pid();
    peer.kill();
    const failure first = us.broken(w);
    CHECK(first.cause == cause::peer_died);
    CHECK(first.peer.pid == pid);
    auto try_all = [](world& w) -> task<std::vector<failure>> {
      std::uint64_t word = 0;
      std::vector<failure> errors;
      auto keep_error = [&](const auto& r) { errors.push_back(r.error()); };
      keep_error(co_await outcome(w.recv(std::span(&word, 1), from(1))));
      keep_error(co_await outcome(w.recv(std::span(&word, 1), any)));
      keep_error(co_await outcome(w.send(std::span(&word, 1), to(1))));
      keep_error(co_await outcome(w.send(std::span(&word, 1), to(1)).delivered()));
      keep_error(co_await outcome(w.arrival(any)));
      keep_error(co_await outcome(w.recv_message<int>(from(1))));
      keep_error(co_await outcome(w.barrier()));
      keep_error(co_await outcome(w.leave()));
      keep_error(co_await outcome(w));
      co_return errors;
    };
    const auto begun = clock::now();
    const auto errors = us.run(try_all(w));
    CHECK(clock::now() - begun < 1s);
    CHECK(errors.size() == 9);
    for (const failure& error : errors) {
      CHECK(error.cause == first.cause);
      CHECK(error.rank == first.rank);
      CHECK(error.peer.pid == first.peer.pid);
      CHECK(error.epoch == first.epoch);
    }
    // Another thing altogether.
    world unformed = us.describe("gone");
    CHECK(us.run(failure_of_receiving(unformed, 1)).cause == cause::not_formed);
  }
}

TEST_CASE(
    "B3: after an error nothing touches the buffer, though the stopped peer goes on") {
  for (const engine_kind e : engines()) {
    CAPTURE(name_of(e));
    // Over tcp: what is read out of a stopped sender's memory does not stop with it.
    std::vector<std::string> options = impatient;
    options.push_back("shm=off");
    stopped_sender s(e, options);
    CHECK(s.error.cause == cause::silent_peer);
    s.sender.go_on();
    // It has tried to send on, and was told.
    s.sender.expect("error late");
    s.check_untouched();
  }
}

TEST_CASE(
    "B3: a stopped sender's message is read whole out of its memory, and nothing touches "
    "the buffer when it goes on") {
  // Who is asked for its message and stopped does not answer.
  if (testing::reading_is_refused_here()) return;
  for (const engine_kind e : engines()) {
    CAPTURE(name_of(e));
    stopped_sender s(e, impatient);
    CHECK(s.error.cause == cause::none);
    CHECK(s.us.broken(s.w).cause == cause::silent_peer);
    s.sender.go_on();
    s.check_untouched();
  }
}

TEST_CASE(
    "B12: a stopped peer is suspect, then out; continued, it cannot reach the new "
    "epoch") {
  for (const engine_kind e : engines()) {
    CAPTURE(name_of(e));
    site here(e);
    process stale = here.worker("same", impatient);
    received old_one;
    received new_one;
    leader us(here, 50ms);
    make_impatient(us);
    world w = us.form("same");
    stale.order("stream same 0 65536 1000000000");
    auto taking = us.rt.start(take_stream(w, 1, 65536, old_one, [] { return false; }));
    us.run(old_one.come(100));
    // No event tells of a suspicion; a silence ends the world, and so the looks at it.
    auto until_suspect = [](world& w) -> task<bool> {
      while (w.state() == world_state::up && !w.is_suspect(1)) co_await sleep_for(5ms);
      co_return w.state() == world_state::up;
    };
    stale.stop();
    const auto stopped = clock::now();
    CHECK(us.run(until_suspect(w)));
    const duration suspected = clock::now() - stopped;
    us.finish(taking);
    const duration noticed = old_one.failed_at - stopped;
    CHECK(old_one.error.cause == cause::silent_peer);
    CHECK(old_one.error.rank == 1);
    CHECK(old_one.error.peer.pid == stale.pid());
    CHECK(suspected < 900ms);
    // What it had sent before it stopped was still being read.
    CHECK(noticed > 800ms);
    CHECK(noticed < 3s);

    const std::uint64_t old_epoch = w.epoch();
    process fresh = here.worker("same", impatient);
    w = us.form("same");
    CHECK(w.epoch() == old_epoch + 1);
    stale.go_on();
    CHECK(stale.expect("over same").starts_with("over same silent_peer 1 "));
    stale.order("send same 0 0 poison");
    stale.expect("error same silent_peer 1");
    fresh.order("stream same 0 65536 200");
    us.run(take_stream(w, 1, 65536, new_one, [&] { return new_one.messages == 200; }));
    CHECK(!new_one.error);
    CHECK(new_one.in_order);
    CHECK(w.state() == world_state::up);
    us.run(w.leave());
    CHECK(fresh.end() == 0);
    CHECK(stale.end() == 0);
  }
}

TEST_CASE(
    "B12: a member that was stopped before it knew of the commit learns the first cause "
    "too") {
  for (const engine_kind e : engines()) {
    CAPTURE(name_of(e));
    site here(e);
    process late = here.worker("early", impatient);
    leader us(here, 50ms);
    make_impatient(us);
    world w = us.form("early");
    // The commit is on its way, or just read.
    late.stop();
    CHECK(us.broken(w).cause == cause::silent_peer);
    us.run(w.drained());
    late.go_on();
    // Whether it was up for a moment or not.
    late.expect_one_of({"over early silent_peer 1 ", "failed early silent_peer 1 "});
    CHECK(late.end() == 0);
  }
}

TEST_SUITE_END();

}  // namespace manyworlds::process_tests
