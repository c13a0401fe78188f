// Whatever a stranger says to a runtime in virtual time, dialling it or being dialled: a
// world that two others have goes on.
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "input.hpp"
#include "link/hello.hpp"
#include "process.hpp"
#include "simulation/simulated_node.hpp"
#include "world/control_message.hpp"
#include "world/runtime_core.hpp"

using namespace manyworlds;
using namespace std::chrono_literals;
using fuzzing::end_both;
using fuzzing::formed;
using fuzzing::input;
using fuzzing::must;
using fuzzing::plain_network;
using fuzzing::process;
using manyworlds_tests::simulated_node;

namespace {

constexpr int most_steps = 48;
constexpr std::uint16_t port = 29500;
constexpr std::uint64_t stranger_world = 7;

// --- the two that have a world

struct conversation {
  std::uint64_t world = 0;
  bool is_over = false;
  int ended_well = 0;
};

/// Until it `is_over`, and then once more.
task<void> talk(process& self, memory_store& store, rank_t rank, conversation& c) {
  world w = co_await formed(self, store, rank);
  c.world = access::core(w).view().id;
  bytes last(1);
  while (last[0] == std::byte{0}) {
    bytes heard(1);
    if (rank == 0) {
      last[0] = std::byte{c.is_over};
      co_await w.send(last, to(1));
      co_await w.recv(heard, from(1));
    } else {
      co_await w.recv(last, from(0));
      co_await w.send(last, to(0));
    }
    co_await sleep_for(20ms);
  }
  co_await w.leave();
  ++c.ended_well;
}

/// Waits for a world of which the stranger says that it is rank 0.
task<void> follow(process& self, memory_store& store) {
  try {
    world w(self.rt(), store,
            {.name = "trap", .rank = 1, .size = 2, .form = 300ms, .drain = 100ms});
    co_await w;
    (void)co_await within(w.broken(), 100ms);
    world alone = co_await within(w.shrink(), 200ms);
    (void)co_await outcome(alone.leave());
  } catch (const world_error&) {
  } catch (const timed_out&) {}
}

// --- the stranger

class stranger {
 public:
  stranger(simulated_node& node, process_address victim, memory_store& store, input& in,
           const std::uint64_t& pair)
      : node_(node), victim_(std::move(victim)), store_(store), in_(in), pair_(pair) {
    self_.id = incarnation(std::as_bytes(std::span("the stranger one")).first<16>());
    self_.endpoint = node.process().address(port);
    self_.identity.host = "nowhere";
  }

  task<void> lie() {
    join_record record;
    record.who = self_;
    record.attempt = 1;
    record.size = 2;
    co_await store_.set(join_record::key("trap", 0), record.encode());
    how_it_answers_ = in_.take<std::uint8_t>();
    listener door(node_.home(), self_.endpoint);
    auto body = [&](scope& s) -> task<void> {
      s.spawn(answer_all(door, s));
      for (int i = 0; i < 4 && !in_.ended(); ++i) co_await dial();
      s.cancel();
    };
    co_await scope::run(body);
  }

 private:
  task<void> dial() {
    stream s;
    if (!(co_await stream::connect(node_.home(), victim_.endpoint, s)).ok()) co_return;
    hello words;
    const unsigned how = in_.take<std::uint8_t>();
    words.purpose = static_cast<connection_purpose>(how % 3);
    if (how / 4 % 2 == 0) words.expected = victim_.id;
    words.world_id = id_from();
    words.rank = static_cast<rank_t>(in_.take<std::int8_t>());
    bool is_welcome = how / 8 % 4 != 0;
    try {
      greeter g(node_.process(), self_, {});
      if (is_welcome) (void)co_await within(g.greet(s, words), 100ms);
    } catch (const link_error&) {
    } catch (const timed_out&) {}
    co_await converse(s);
  }
  task<void> answer_all(listener& door, scope& s) {
    for (;;) {
      const io_result accepted = co_await door.accept();
      if (!accepted.ok()) co_return;
      s.spawn(answer(manyworlds::socket(node_.home().sockets(), accepted.handle())));
    }
  }
  task<void> answer(manyworlds::socket accepted) {
    stream s(node_.home(), std::move(accepted));
    const unsigned how = how_it_answers_;
    bool asks = false;
    const auto decide = [&](const hello& h) {
      asks = h.purpose == connection_purpose::query;
      return static_cast<hello_status>(how % 8);
    };
    try {
      greeter g(node_.process(), self_, {});
      if (how / 8 % 4 != 0) (void)co_await within(g.answer(s, decide), 100ms);
    } catch (const link_error&) {
    } catch (const timed_out&) {}
    if (asks && how < 128) {
      const bytes held{std::byte{1}, {}, {}, {}, std::byte{1}};
      (void)co_await s.send_all(held);
    } else {
      co_await converse(s);
    }
  }

  task<void> converse(stream& s) {
    for (int i = 0; i < most_steps && !in_.ended(); ++i) {
      const unsigned what = in_.take<std::uint8_t>();
      wire_writer out;
      switch (what % 8) {
        case 0:
          co_return;
        case 1:
          co_await sleep_for(1ms * in_.take<std::uint8_t>());
          continue;
        case 2:
          out.put_raw(some());
          break;
        case 3: {
          // As hellos and queries are framed.
          const bytes body = some();
          out.put(static_cast<std::uint32_t>(body.size())).put_raw(body);
          break;
        }
        case 4: {
          const bytes body = some();
          out.put(static_cast<std::uint32_t>(body.size()));
          out.put(in_.take<std::uint8_t>()).put_raw(body);
          break;
        }
        default: {
          const bytes body = co_await control(what / 8);
          constexpr std::uint8_t message = 1;
          out.put(static_cast<std::uint32_t>(body.size())).put(message).put_raw(body);
        }
      }
      const bytes data = out.take();
      try {
        (void)co_await within(s.send_all(data), 5ms);
      } catch (const timed_out&) {}
    }
  }

  bytes some() {
    bytes data(in_.take<std::uint8_t>());
    in_.take_into(data);
    return data;
  }
  std::uint64_t id_from() {
    const unsigned which = in_.take<std::uint8_t>();
    return which % 3 == 0 ? pair_ : which % 3 == 1 ? stranger_world : which;
  }
  world_view view_from() {
    world_view v;
    v.name = in_.take<std::uint8_t>() % 2 == 0 ? "trap" : "pair";
    v.epoch = 1 + in_.take<std::uint8_t>();
    v.id = id_from();
    v.members = {self_, victim_};
    const unsigned more = in_.take<std::uint8_t>();
    if (more % 4 == 1) std::swap(v.members[0], v.members[1]);
    if (more % 4 == 2) v.members.push_back(self_);
    return v;
  }
  /// What a member would say, and is none of.
  task<bytes> control(unsigned kind) {
    switch (kind % 9) {
      case 0: {
        // The victim's try stands in the store.
        propose_message m;
        const auto record = co_await store_.try_get(join_record::key("trap", 1));
        if (record && !record->empty()) m.attempt = join_record::decode(*record).attempt;
        m.view = view_from();
        m.rank = 1;
        co_return encode(m);
      }
      case 1:
        co_return encode(ready_message{id_from(), 0, true, {}});
      case 2:
        co_return encode(commit_message{id_from()});
      case 3:
        co_return encode(rollback_message{id_from(), "for no reason"});
      case 4:
        co_return encode(refuse_message{id_from(), cause::rank_taken, {}});
      case 5:
        co_return encode(broken_message{id_from(), cause::peer_died, 1, {}});
      case 6: {
        survivor_message m;
        m.name = in_.take<std::uint8_t>() % 2 == 0 ? "trap" : "pair";
        m.epoch = 1 + in_.take<std::uint8_t>();
        m.base = id_from();
        m.asks = in_.take<std::uint8_t>() % 2 == 0;
        m.pending_votes.assign(in_.take<std::uint8_t>() % 4, {0, 1});
        co_return encode(m);
      }
      case 7: {
        status_message m;
        m.base = id_from();
        m.status = static_cast<member_status>(in_.take<std::uint8_t>() % 3);
        m.epoch = 1;
        m.view = view_from();
        co_return encode(m);
      }
      default:
        co_return encode(successor_message{id_from(), view_from()});
    }
  }

  simulated_node& node_;
  const process_address victim_;
  memory_store& store_;
  input& in_;
  const std::uint64_t& pair_;
  process_address self_;
  unsigned how_it_answers_ = 0;
};

}  // namespace

// First how it answers who dials it. Then, for whom it dials and who dials it in turn,
// how it greets and what it says.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  input in(data, size);
  simulation sim(1, plain_network());
  memory_store store;
  process victim(sim, "victim");
  process friendly(sim, "friendly");
  simulated_node node(sim, "stranger");
  conversation c;
  victim.start(talk(victim, store, 0, c));
  friendly.start(talk(friendly, store, 1, c));
  must(sim.run_until([&] { return c.world != 0; }, 10s));
  victim.start(follow(victim, store));
  stranger liar(node, mw::access::core(victim.rt()).self(), store, in, c.world);
  node.spawn(liar.lie());
  must(sim.run_until([&] { return node.has_ended(); }, 60s));
  node.check();
  c.is_over = true;
  must(sim.run_until([&] { return victim.is_quiet() && friendly.is_quiet(); }, 60s));
  must(c.ended_well == 2);
  node.end();
  end_both(sim, victim, friendly);
  return 0;
}
