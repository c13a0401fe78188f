// Agents pass on what their workers are told and say (disco A55, A64).
#include <sys/types.h>

#include <array>
#include <csignal>
#include <functional>
#include <thread>

#include "manyworlds/serve/hosted_store.hpp"
#include "session_fixture.hpp"
#include "spmd/node_wire.hpp"
#include "spmd/worker_invitation.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::spmd_tests {

namespace {

using namespace detail::node_wire;
using detail::command_wire::command_head;
using detail::command_wire::command_kind;
using detail::command_wire::reply_kind;

bool tells(const std::string& text, const std::string& words) {
  CAPTURE(text);
  return text.find(words) != std::string::npos;
}

/// What the controller has sent to node 0 so far.
transfer_counters sent_to_node(runtime& controller) {
  for (const auto& each : detail::access::core(controller).reports().report().worlds) {
    if (each.name == node_name(0) && each.transfers) return each.transfers->counters;
  }
  FAIL("it has no node");
  return {};
}

/// No silence, and no question, of a busy machine comes between.
session_options patient() {
  session_options limits;
  limits.suspect_after = 10min;
  limits.lost_after = 20min;
  return limits;
}

}  // namespace

TEST_CASE("what all workers of a node are told crosses the network once") {
  constexpr std::size_t size = std::size_t{1} << 20;
  session_over_nodes all(1, 4, patient());
  node_of_test only(all.address(), 0);
  all.run([&](session& s) -> task<void> {
    co_await s.sync();
    const transfer_counters before = sent_to_node(all.controller());
    const std::vector<std::byte> values(size);
    // Each worker has it all.
    const dref<std::vector<std::byte>> kept = co_await s.call(same_bytes, values);
    const transfer_counters between = sent_to_node(all.controller());
    CHECK(between.bytes_sent - before.bytes_sent >= size);
    CHECK(between.bytes_sent - before.bytes_sent < size + size / 4);
    // So is what asks each for another answer, and what has no block.
    CHECK(co_await s.call(place_alone).from(2) == ints(2, 2, 4, 1));
    co_await s.sync();
    const transfer_counters after = sent_to_node(all.controller());
    CHECK(after.messages_sent - before.messages_sent == 3);
    CHECK(after.bytes_sent - between.bytes_sent < 4096);
  });
}

TEST_CASE(
    "disco A55: a worker of a node that reads nothing delays neither the others nor its "
    "agent") {
  session_over_nodes all(1, 3, patient());
  node_of_test only(all.address(), 0);
  all.run([](session& s) -> task<void> {
    co_await s.sync();
    const auto stopped = static_cast<pid_t>(s.describe(0).pid);
    REQUIRE(stopped > 0);
    REQUIRE(::kill(stopped, SIGSTOP) == 0);
    // More than its windows and its queues hold, and in one piece what is larger.
    auto flooding = [&]() -> task<void> {
      const std::vector<std::byte> part(std::size_t{64} << 10);
      std::vector<dref<std::vector<std::byte>>> kept;
      const std::vector<std::byte> whole(std::size_t{8} << 20);
      kept.push_back(co_await s.issue(same_bytes, whole).on(0));
      for (int i = 0; i < 100; ++i)
        kept.push_back(co_await s.issue(same_bytes, part).on(0));
      co_await s.sync(0);
    };
    auto sending = [&]() -> task<void> {
      const std::vector<std::byte> large(std::size_t{8} << 20);
      CHECK((co_await s.call(same_bytes, large).from(1)).size() == large.size());
    };
    auto calling = [&]() -> task<void> {
      for (int i = 0; i < 20; ++i) {
        CHECK(co_await s.call(add_one, i).on(1).from(1) == i + 1);
        const mesh others = s.mesh({1, 2});
        CHECK(co_await others.call(fails_on, 1000).all() == ints(2, 2));
      }
      ::kill(static_cast<pid_t>(s.describe(2).pid), SIGKILL);
      while (s.describe(2).state != worker_state::lost) co_await sleep_for(1ms);
      co_await s.respawn(2);
      CHECK(co_await s.call(add_one, 1).on(2).from(2) == 2);
      CHECK(::kill(stopped, SIGCONT) == 0);
    };
    co_await when_all(sending(), flooding(), calling());
    CHECK(co_await s.call(rank_here).all() == ints(0, 1, 2));
  });
}

TEST_CASE(
    "calls of all kinds fail and go on over one agent, in the order of their issue") {
  session_over_nodes all(1, 3, patient());
  node_of_test only(all.address(), 0);
  all.run([](session& s) -> task<void> {
    for (int round = 0; round < 10; ++round) {
      const dref<int> x = co_await s.issue(add_one, round);
      co_await s.issue(add_to, x, 1).on(1);
      co_await s.issue(add_to, x, 2);
      CHECK(co_await s.call(one_more, x).all() == ints(round + 4, round + 5, round + 4));
      const refusal told = co_await refusal_of(s.call(fails_on, round % 3));
      CHECK(told.says("asked to fail"));
      const refusal late =
          co_await refusal_of(s.call(all_but_one_enter, 0, 60'000).within(20ms));
      CHECK(late.cause == cause::timed_out);
      CHECK(co_await s.call(fails_on, 1000).all() == ints(3, 3, 3));
    }
  });
}

// --- agents that are none -------------------------------------------------------------

namespace {

/// Joins as the agent of node 0 and says of each worker that it is there.
class false_agent {
 public:
  using script = std::function<task<void>(false_agent&)>;

  /// Runs the script on a thread of its own, until the world is over.
  false_agent(const std::string& address, script what)
      : thread_([this, address, what] { run(address, what); }) {}

  /// The next command, unless it is for a mesh alone. Its block is not received.
  task<message<command_for>> next(lane on) {
    for (;;) {
      const auto told = co_await w_.recv_message<command_for>(from{0}, on);
      if (told.head.command.kind != command_kind::mesh) co_return told;
      co_await drop(told, on);
    }
  }
  task<void> drop(message<command_for> what, lane on) {
    std::vector<std::byte> rest(what.info.bytes);
    co_await w_.recv(rest, from{0}, on);
  }
  task<word_of> next_sync() {
    const auto told = co_await next(commands);
    co_await drop(told, commands);
    co_return answer_to(told.head.command);
  }
  /// What a right one says of worker 0.
  static word_of answer_to(const command_head& command) {
    word_of head{};
    head.kind = word_kind::reply;
    head.incarnation = 1;
    head.reply.kind = reply_kind::ended;
    head.reply.call = command.call;
    head.reply.done = 1;
    return head;
  }
  task<void> say(word_of head, std::size_t bytes = 0) {
    const std::vector<std::byte> block(bytes);
    co_await w_.send_message(head, block, to{0}, commands);
  }
  task<std::string> failed() {
    for (;;) {
      const order_head order = co_await next_order();
      if (order.kind == order_kind::fail) co_return text_;
    }
  }

 private:
  void run(const std::string& address, const script& what) {
    runtime rt(guarded(secret_of_tests));
    tcp_store_options options;
    options.secret = secret_of_tests;
    tcp_store meeting(rt, address, options);
    rt.run(in_time(serve(rt, meeting, what)));
  }
  task<void> serve(runtime& rt, store& meeting, script what) {
    try {
      w_ = world(rt, meeting, {.name = node_name(0), .rank = 1, .size = 2});
      co_await w_;
      report_head hello{};
      hello.kind = report_kind::hello;
      hello.worker = static_cast<int>(version);
      co_await w_.send_message(hello, to{0}, orders);
      const order_head order = co_await next_order();
      report_head started{};
      started.kind = report_kind::started;
      started.incarnation = order.incarnation;
      co_await w_.send_message(started, to{0}, orders);
      word_of joined{};
      joined.kind = word_kind::joined;
      joined.incarnation = order.incarnation;
      co_await w_.send_message(joined, to{0}, commands);
      co_await what(*this);
      co_await when_any(end_workers(), close_workers());
    } catch (const world_error&) {
      // The controller has left, or has broken the world.
    }
    w_ = world();
  }
  task<void> end_workers() {
    for (;;) {
      const order_head ending = co_await next_order();
      if (ending.kind != order_kind::end) continue;
      report_head gone{};
      gone.kind = report_kind::gone;
      gone.worker = ending.worker;
      gone.incarnation = ending.incarnation;
      co_await w_.send_message(gone, to{0}, orders);
    }
  }
  task<void> close_workers() {
    for (;;) {
      const auto told = co_await next(commands);
      co_await drop(told, commands);
      if (told.head.command.kind != command_kind::close) continue;
      word_of over = answer_to(told.head.command);
      over.kind = word_kind::over;
      over.why = static_cast<std::uint8_t>(cause::closed);
      co_await say(over);
    }
  }
  task<order_head> next_order() {
    const auto told = co_await w_.recv_message<order_head>(from{0}, orders);
    text_.resize(told.info.bytes);
    if (told.info.has_payload)
      co_await w_.recv(std::as_writable_bytes(std::span(text_)), from{0}, orders);
    co_return told.head;
  }

  world w_;
  std::string text_;
  std::jthread thread_;
};

/// What becomes of a call of one worker, of which the agent says this in place of an
/// answer. Gives what the worker is lost by.
std::string lost_by(std::function<void(word_of&)> change, std::size_t bytes = 0) {
  session_over_nodes all(1, 1, patient());
  const false_agent liar(all.address(), [=](false_agent& own) -> task<void> {
    word_of head = co_await own.next_sync();
    change(head);
    co_await own.say(head, bytes);
  });
  std::string lost;
  all.run([&](session& s) -> task<void> {
    const refusal told = co_await refusal_of(s.sync());
    CHECK(told.cause == cause::broken_by_user);
    lost = s.describe(0).loss;
  });
  return lost;
}

}  // namespace

TEST_CASE(
    "disco A64: an agent that lies about workers is lost, before any memory is taken") {
  const auto of_another = [](word_of& head) { head.worker = 1; };
  CHECK(tells(lost_by(of_another), "a word of worker 1, which is not of this node"));
  const auto of_none = [](word_of& head) { head.worker = -1; };
  CHECK(tells(lost_by(of_none), "a word of worker -1, which is not of this node"));
  const auto too_long = [](word_of& head) { head.reply.values_bytes = 64; };
  CHECK(tells(lost_by(too_long, 63), "node 0 is lost: "));
  CHECK(tells(lost_by(too_long, 63), "a reply that contradicts itself"));
  const auto too_large = [](word_of& head) { head.reply.beside_bytes = ~0ULL; };
  CHECK(tells(lost_by(too_large), "a reply that contradicts itself"));
  const auto strange = [](word_of& head) { head.kind = static_cast<word_kind>(9); };
  CHECK(tells(lost_by(strange), "a word that this version does not know"));
  const auto long_end = [](word_of& head) { head.kind = word_kind::over; };
  CHECK(tells(lost_by(long_end, 100'000), "a text of 100000 bytes"));
}

TEST_CASE(
    "a reply that contradicts those before it ends its worker, by order of the agent") {
  session_over_nodes all(1, 1, patient());
  std::string ordered;
  {
    const false_agent liar(all.address(), [&](false_agent& own) -> task<void> {
      word_of head = co_await own.next_sync();
      head.reply.done = 1000;
      co_await own.say(head);
      ordered = co_await own.failed();
    });
    all.run([](session& s) -> task<void> {
      const refusal told = co_await refusal_of(s.sync());
      CHECK(told.cause == cause::broken_by_user);
      CHECK(told.says("a reply that contradicts itself"));
      CHECK(!told.says("node 0 is lost"));
    });
  }
  CHECK(ordered == "a reply that contradicts itself");
}

TEST_CASE("what comes of an incarnation that is over, or late, is dropped") {
  session_over_nodes all(1, 1, patient());
  const false_agent right(all.address(), [](false_agent& own) -> task<void> {
    word_of head = co_await own.next_sync();
    word_of late = head;
    late.incarnation = 7;
    late.reply.kind = reply_kind::failed;
    late.reply.values_bytes = 1000;
    co_await own.say(late, 1000);
    late = head;
    late.incarnation = 0;
    late.kind = word_kind::over;
    co_await own.say(late, 1000);
    co_await own.say(head);
  });
  all.run([](session& s) -> task<void> { co_await s.sync(); });
}

TEST_CASE("the end of a call is told although its arguments are still on their way") {
  session_over_nodes all(1, 1, patient());
  const false_agent slow(all.address(), [](false_agent& own) -> task<void> {
    // It takes no command before it has heard that the call is given up.
    const auto end = co_await own.next(urgent);
    CHECK(end.head.command.kind == command_kind::end);
    co_await own.drop(end, urgent);
    const auto call = co_await own.next(commands);
    CHECK(call.head.command.call == end.head.command.call);
    co_await own.drop(call, commands);
    word_of head = false_agent::answer_to(call.head.command);
    head.reply.kind = reply_kind::skipped;
    co_await own.say(head);
  });
  all.run([](session& s) -> task<void> {
    const std::vector<std::byte> large(std::size_t{8} << 20);
    const refusal told = co_await refusal_of(s.call(same_bytes, large).within(50ms));
    CHECK(told.cause == cause::timed_out);
  });
}

// --- controllers that are none ---------------------------------------------------------

namespace {

/// Runs `body(world&)` as the controller of node 0, which has a right agent.
template <class Body>
void as_controller(Body body) {
  runtime rt(guarded(secret_of_tests));
  hosted_store_options guarded_store;
  guarded_store.secret = secret_of_tests;
  hosted_store host(rt, "127.0.0.1:0", guarded_store);
  tcp_store_options options;
  options.secret = secret_of_tests;
  tcp_store meeting(rt, host.address(), options);
  node_of_test agent(host.address(), 0);
  auto whole = [&]() -> task<void> {
    co_await meeting.set(limits_key, "600000000000 1200000000000");
    world w(rt, meeting, {.name = node_name(0), .rank = 0, .size = 2});
    co_await w;
    (void)co_await w.recv_message<report_head>(from{1}, orders);
    co_await body(w, host.address());
  };
  rt.run(in_time(whole()));
  (void)agent.end();
}

task<void> give(world& w, command_head command, std::uint64_t behind, lane on,
                const std::vector<std::byte>& block = {}) {
  command_for head{};
  head.command = command;
  head.targets = 1;
  command_target target{};
  target.incarnation = 1;
  target.behind = behind;
  const std::array<const_buffer_view, 2> rest{
      const_buffer_view(std::as_bytes(std::span(&target, 1))),
      const_buffer_view(std::span<const std::byte>(block))};
  co_await w.send_message(head, rest, to{1}, on);
}

/// Lets the agent start a worker, and returns its process once it has joined.
task<pid_t> started_at(world& w, std::string store) {
  order_head order{};
  order.kind = order_kind::start;
  order.incarnation = 1;
  const detail::worker_invitation invitation{{"of tests", 0, 1, 1, patient()},
                                             std::move(store)};
  const std::string invited = invitation.text();
  co_await w.send_message(order, invited, to{1}, orders);
  const auto report = co_await w.recv_message<report_head>(from{1}, orders);
  CHECK(report.head.kind == report_kind::started);
  const auto word = co_await w.recv_message<word_of>(from{1}, commands);
  CHECK(word.head.kind == word_kind::joined);
  co_return static_cast<pid_t>(report.head.pid);
}

}  // namespace

TEST_CASE("an agent refuses commands of which the lengths contradict each other") {
  for (const std::uint32_t targets : {2U, 5000U}) {
    as_controller([=](world& w, std::string) -> task<void> {
      command_for head{};
      head.command.kind = command_kind::sync;
      head.targets = targets;
      const std::vector<std::byte> rest(sizeof(command_target));
      enum cause why = cause::none;
      std::string text;
      try {
        co_await w.send_message(head, rest, to{1}, commands);
        (void)co_await w.recv_message<report_head>(from{1}, orders);
      } catch (const world_error& e) {
        why = e.cause();
        text = e.what();
      }
      CHECK(why == cause::broken_by_user);
      CHECK(tells(text, "the lengths of a command contradict each other"));
    });
  }
}

TEST_CASE("a worker of a node that is stopped may be alerted any number of times") {
  as_controller([](world& w, std::string store) -> task<void> {
    const pid_t pid = co_await started_at(w, store);
    REQUIRE(pid > 0);
    REQUIRE(::kill(pid, SIGSTOP) == 0);
    constexpr std::uint64_t alerts = 40'000;
    command_head head{};
    head.kind = command_kind::alert;
    for (std::uint64_t i = 0; i < alerts; ++i) co_await give(w, head, 0, urgent);
    head.kind = command_kind::sync;
    head.call = 1;
    co_await give(w, head, alerts, commands);
    REQUIRE(::kill(pid, SIGCONT) == 0);
    const auto word = co_await w.recv_message<word_of>(from{1}, commands);
    CHECK(word.head.kind == word_kind::reply);
    CHECK(word.head.reply.call == 1);
    co_await w.leave();
  });
}

TEST_CASE(
    "an agent keeps 64 MiB of answers for a worker that does not read, and no more") {
  as_controller([](world& w, std::string store) -> task<void> {
    const pid_t pid = co_await started_at(w, store);
    REQUIRE(pid > 0);
    REQUIRE(::kill(pid, SIGSTOP) == 0);
    const std::vector<std::byte> block(std::size_t{4} << 20);
    command_head head{};
    head.kind = command_kind::answer;
    head.values_bytes = static_cast<std::uint32_t>(block.size());
    for (int i = 0; i < 40; ++i) co_await give(w, head, 0, urgent, block);
    const auto word = co_await w.recv_message<word_of>(from{1}, commands);
    CHECK(word.head.kind == word_kind::over);
    std::string why(word.info.bytes, ' ');
    co_await w.recv(std::as_writable_bytes(std::span(why)), from{1}, commands);
    CHECK(tells(why, "does not read what it is told"));
    co_await w.leave();
  });
}

TEST_CASE("a command waits at the agent for the urgent ones that were told before it") {
  as_controller([](world& w, std::string store) -> task<void> {
    (void)co_await started_at(w, store);
    command_head head{};
    head.kind = command_kind::sync;
    head.call = 1;
    co_await give(w, head, 1, commands);
    CHECK_THROWS_WITH_AS(co_await w.arrival(from{1}, commands).within(50ms),
                         doctest::Contains("timed out"), world_error);
    head.kind = command_kind::ask;
    co_await give(w, head, 0, urgent);
    auto word = co_await w.recv_message<word_of>(from{1}, commands);
    CHECK(word.head.reply.kind == reply_kind::status);
    std::vector<std::byte> said(word.info.bytes);
    co_await w.recv(said, from{1}, commands);
    word = co_await w.recv_message<word_of>(from{1}, commands);
    CHECK(word.head.reply.kind == reply_kind::ended);
    CHECK(word.head.reply.call == 1);
    co_await w.leave();
  });
}

}  // namespace manyworlds::spmd_tests
