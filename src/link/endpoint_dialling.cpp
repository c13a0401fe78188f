// Dialling: an endpoint gets a link, a data connection, an answer.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "link/endpoint.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

namespace {

using namespace std::chrono_literals;

constexpr duration collision_patience = 2s;
constexpr duration ending_look = 10ms;

}  // namespace

task<link_hold> endpoint::reach(process_address peer, time_point deadline) {
  for (;;) {
    const auto e = entry_of(peer.id);
    if (e->up && e->up->is_usable()) co_return link_hold(e->up);
    if (service_.now() >= deadline) {
      throw link_error(cause::silent_peer, peer.text() + " did not answer in time");
    }
    // Wait for a link that is about to end: the peer declines, or a new one follows.
    const bool is_ending = e->up && e->up->is_up();
    bool wait_for_theirs = e->dialling || e->accepting > 0 || is_ending;
    if (!wait_for_theirs) {
      hello words;
      words.purpose = connection_purpose::link;
      words.expected = peer.id;
      std::optional<process_address> met;
      {
        struct dialling {
          entry& e;
          explicit dialling(entry& on) : e(on) {
            MW_ASSERT(!e.dialling, "one dial to a peer at a time");
            e.dialling = true;
          }
          ~dialling() {
            e.dialling = false;
            e.changed.set();
          }
        } now(*e);
        stream s = co_await dial(peer, words, deadline, met);
        if (met && !(e->up && e->up->is_up())) {
          co_return link_hold(establish(std::move(s), *met, true));
        }
      }
      wait_for_theirs = !met;
    }
    if (wait_for_theirs && !(e->up && e->up->is_usable())) {
      e->changed.reset();
      // A dial of either side sets `changed`; otherwise look again and perhaps dial.
      try {
        co_await within(e->changed.wait(),
                        std::min<duration>(deadline - service_.now(),
                                           is_ending ? ending_look : collision_patience));
      } catch (const timed_out&) {
        continue;
      }
    }
  }
}

task<stream> endpoint::dial(process_address peer, hello words, time_point deadline,
                            std::optional<process_address>& met) {
  stream s;
  auto attempt = [this](stream& into, socket_address address, hello& said,
                        std::optional<process_address>& who) -> task<io_result> {
    const io_result connected = co_await stream::connect(service_, address, into);
    if (!connected.ok()) co_return connected;
    who = co_await greeter_.greet(into, said);
    co_return connected;
  };
  bool late = false;
  io_result connected;
  try {
    connected =
        co_await within(attempt(s, peer.endpoint, words, met), deadline - service_.now());
  } catch (const timed_out&) {
    late = true;
  }
  if (late) throw link_error(cause::silent_peer, peer.text() + " did not answer in time");
  if (!connected.ok()) {
    const bool no_listener =
        connected.error() == ECONNREFUSED || connected.error() == ECONNRESET;
    const bool ours = connected.error() == EMFILE || connected.error() == ENFILE;
    throw link_error(no_listener ? cause::peer_died
                     : ours      ? cause::out_of_resources
                                 : cause::silent_peer,
                     fmt::format("cannot reach {}: {}", peer.text(),
                                 std::strerror(connected.error())));
  }
  co_return s;
}

task<stream> endpoint::dial_data(process_address peer, std::uint64_t world_id,
                                 rank_t self, time_point deadline) {
  hello words;
  words.purpose = connection_purpose::data;
  words.expected = peer.id;
  words.world_id = world_id;
  words.rank = self;
  std::optional<process_address> met;
  co_return co_await dial(std::move(peer), words, deadline, met);
}

task<bytes> endpoint::ask(process_address peer, bytes question, time_point deadline) {
  hello words;
  words.purpose = connection_purpose::query;
  words.expected = peer.id;
  std::optional<process_address> met;
  stream s = co_await dial(peer, words, deadline, met);
  auto exchange = [](stream& with, bytes asked) -> task<bytes> {
    wire_writer out;
    out.put(static_cast<std::uint32_t>(asked.size())).put_raw(asked);
    const bytes framed = out.take();
    bytes answer;
    io_result got = co_await with.send_all(framed);
    std::uint32_t size = 0;
    if (got.ok()) {
      got = co_await with.receive_exactly(std::as_writable_bytes(std::span(&size, 1)));
    }
    if (got.ok() && got.count() == sizeof size && size <= link::longest_message) {
      answer.resize(size);
      got = co_await with.receive_exactly(answer);
      if (got.ok() && got.count() == size) co_return answer;
    }
    throw link_error(cause::peer_died, "the peer hung up on a question");
  };
  bool late = false;
  bytes answer;
  try {
    answer = co_await within(exchange(s, std::move(question)), deadline - service_.now());
  } catch (const timed_out&) {
    late = true;
  }
  if (late) throw link_error(cause::silent_peer, peer.text() + " did not answer in time");
  co_return answer;
}

}  // namespace manyworlds::inline v0::detail
