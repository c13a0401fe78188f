// What PyTorch's own clients and servers said to each other, said again to our server and
// by our client, under a simulated network (S1).
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "io/stream.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/store/tcp_store.hpp"
#include "simulation/simulated_node.hpp"
#include "store/tcp_store_protocol.hpp"
#include "store/tcp_store_server.hpp"
#include "store/torch_operations.hpp"
#include "store/transcript.hpp"

using namespace manyworlds;
using namespace manyworlds_tests;
using namespace std::chrono_literals;

TEST_SUITE_BEGIN("tcp_store_server");

namespace {

constexpr std::uint16_t transcript_port = 29500;
/// Longer than any way through the simulated network.
constexpr duration on_its_way = 1ms;
constexpr std::size_t in_single_bytes = static_cast<std::size_t>(-1);

/// Cuts are ours to make.
simulation_options whole_segments() {
  simulation_options options;
  options.short_transfers = options.split_segments = options.late_requests = false;
  return options;
}

std::span<const std::byte> raw(std::string_view text) {
  return std::as_bytes(std::span(text));
}

/// Says a transcript's part of the clients, cut at one of its bytes, and compares what it
/// hears with the part of the servers.
class replayed_clients {
 public:
  replayed_clients(simulated_node& at, socket_address server, const transcript& t,
                   std::size_t cut)
      : at_(at), server_(server), transcript_(t), cut_(cut) {}

  task<void> run() {
    for (const transcript_step& step : transcript_.steps) {
      if (step.what == transcript_step::kind::connects) {
        (void)co_await stream::connect(at_.home(), server_, streams_[step.connection]);
      } else if (step.what == transcript_step::kind::asks) {
        co_await say(streams_[step.connection], step.bytes);
      } else {
        co_await hear(step);
      }
    }
    for (auto& [connection, s] : streams_) {
      const std::string more = co_await received(s, 1);
      if (!more.empty()) wrong_ = std::string(1, connection) + " is told more";
    }
  }

  /// What was not as recorded; empty if all was.
  [[nodiscard]] const std::string& wrong() const noexcept { return wrong_; }

 private:
  task<void> say(stream& s, std::string_view bytes) {
    while (!bytes.empty()) {
      std::size_t part = bytes.size();
      if (cut_ == in_single_bytes) part = 1;
      if (cut_ > said_ && cut_ - said_ < part) part = cut_ - said_;
      (void)co_await s.send_all(raw(bytes.substr(0, part)));
      co_await sleep_for(on_its_way);
      said_ += part;
      bytes.remove_prefix(part);
    }
  }

  task<void> hear(const transcript_step& step) {
    const std::string heard =
        co_await received(streams_[step.connection], step.bytes.size());
    if (heard != step.bytes && wrong_.empty())
      wrong_ = std::string(1, step.connection) + " is told other bytes";
  }

  /// What has come when there should be that many bytes.
  task<std::string> received(stream& s, std::size_t size) {
    std::vector<std::byte> buffer(size);
    std::size_t count = 0;
    try {
      const io_result got = co_await within(s.receive_exactly(buffer), 2 * on_its_way);
      count = got.ok() ? got.count() : 0;
    } catch (const timed_out&) {}
    co_return std::string(reinterpret_cast<const char*>(buffer.data()), count);
  }

  simulated_node& at_;
  const socket_address server_;
  const transcript& transcript_;
  const std::size_t cut_;
  std::size_t said_ = 0;
  std::map<char, stream> streams_;
  std::string wrong_;
};

/// Returns what was not as recorded.
std::string replayed(const transcript& t, std::size_t cut) {
  simulation sim(1, whole_segments());
  simulated_node host(sim, "host");
  simulated_node user(sim, "user");
  tcp_store_server server(host.home(), host.process().address(transcript_port));
  host.spawn(server.serve());
  replayed_clients clients(user, server.address(), t, cut);
  user.spawn(clients.run());
  REQUIRE(sim.run_until([&] { return user.has_ended(); }));
  user.check();
  user.end();
  server.stop();
  host.end();
  return clients.wrong();
}

/// Returns where a transcript's replay first differs; empty if it never does.
std::string first_difference(const transcript& t) {
  for (std::size_t cut = 0; cut < t.asked_bytes(); ++cut) {
    const std::string wrong = replayed(t, cut);
    if (!wrong.empty()) return wrong + ", cut at " + std::to_string(cut);
  }
  return replayed(t, in_single_bytes);
}

}  // namespace

TEST_CASE(
    "S1: clients of torch 1.13, 2.6 and 2.14 are answered as by their own servers, byte "
    "for byte: whole, cut at each byte, and byte by byte") {
  for (const std::string version : {"1.13", "2.6", "2.14"}) {
    for (const transcript& t : transcripts_of(version)) {
      INFO("torch ", version, ", ", t.name);
      CHECK(first_difference(t) == "");
    }
  }
}

// --------------------------------------------------------------------------- Our client

namespace {

using opcode = tcp_store_opcode;

/// A recorded request, and what its server replied.
struct recorded_exchange {
  char connection = 'a';
  opcode asked = opcode::validate;
  std::string request;
  std::string reply;
  bool was_asked = false;
};

/// Cuts bytes into requests; `take` gets each with its bytes.
template <class Take>
void for_each_request(tcp_store_parser& parser, std::string& begun, std::string_view more,
                      Take take) {
  std::span<const std::byte> left = raw(more);
  while (!left.empty() && !parser.failed()) {
    const std::size_t before = left.size();
    const char* const from = reinterpret_cast<const char*>(left.data());
    const bool is_whole = parser.feed(left);
    begun.append(from, before - left.size());
    if (!is_whole) continue;
    const opcode asked = parser.take().opcode;
    take(asked, std::exchange(begun, {}));
  }
}

/// Replies to our client what a server of PyTorch has replied to its own client.
class recorded_server {
 public:
  explicit recorded_server(const transcript& t) {
    std::map<char, tcp_store_parser> parsers;
    std::map<char, std::size_t> last;
    std::string begun;
    for (const transcript_step& step : t.steps) {
      const char c = step.connection;
      if (step.what == transcript_step::kind::is_told) {
        exchanges_[last[c]].reply += step.bytes;
        continue;
      }
      for_each_request(parsers[c], begun, step.bytes, [&](opcode asked, std::string r) {
        last[c] = exchanges_.size();
        exchanges_.push_back({c, asked, std::move(r), {}});
      });
    }
  }

  task<void> serve(simulated_node& at) {
    listener door(at.home(), at.process().address(transcript_port));
    const auto body = [&](scope& s) -> task<void> {
      for (;;) {
        const io_result accepted = co_await door.accept();
        class socket taken(at.home().sockets(), accepted.handle());
        s.spawn(serve_one(at.home(), std::move(taken)));
      }
    };
    co_await scope::run(body);
  }

  /// The requests that were not recorded, and those recorded that were not asked.
  [[nodiscard]] std::string differences() const {
    std::string all = unknown_;
    for (const recorded_exchange& e : exchanges_) {
      const bool is_greeting = e.asked == opcode::validate || e.asked == opcode::ping;
      if (!e.was_asked && !is_greeting && !is_ahead_of_read(e))
        all += "not asked: " + shown(e.request) + '\n';
    }
    return all;
  }

 private:
  /// Where PyTorch's client waits before it reads, ours reads, and waits if it must.
  [[nodiscard]] bool is_ahead_of_read(const recorded_exchange& wait) const {
    if (wait.asked != opcode::wait) return false;
    for (const recorded_exchange* next = &wait + 1;
         next != exchanges_.data() + exchanges_.size(); ++next) {
      if (next->connection == wait.connection) {
        return next->asked == opcode::get || next->asked == opcode::multi_get ||
               next->asked == opcode::queue_pop;
      }
    }
    return false;
  }

  task<void> serve_one(reactor& home, class socket taken) {
    stream s(home, std::move(taken));
    tcp_store_parser parser;
    std::string begun;
    std::vector<std::byte> buffer(4096);
    for (;;) {
      const io_result got = co_await s.receive_some(buffer);
      if (!got.ok() || got.count() == 0) co_return;
      std::string replies;
      const std::string_view heard(reinterpret_cast<const char*>(buffer.data()),
                                   got.count());
      for_each_request(parser, begun, heard, [&](opcode asked, const std::string& r) {
        replies += reply_to(asked, r);
      });
      (void)co_await s.send_all(raw(replies));
    }
  }

  std::string reply_to(opcode asked, const std::string& request) {
    // Both are of the connection, not of the operation.
    if (asked == opcode::validate) return {};
    if (asked == opcode::ping) return request.substr(1);
    // The first one of several alike that was not asked yet.
    recorded_exchange* found = nullptr;
    for (recorded_exchange& e : exchanges_) {
      if (e.request == request && (!found || found->was_asked)) found = &e;
    }
    if (found) {
      found->was_asked = true;
      return found->reply;
    }
    // Our client checks what PyTorch's waits for.
    std::string wait = request;
    wait[0] = static_cast<char>(opcode::wait);
    for (const recorded_exchange& e : exchanges_) {
      if (asked == opcode::check && e.request == wait)
        return e.reply.empty() ? "\x01" : std::string("\0", 1);
    }
    unknown_ += "not recorded: " + shown(request) + '\n';
    return {};
  }

  static std::string shown(std::string_view bytes) {
    std::string text;
    for (const char c : bytes) {
      constexpr std::string_view hex = "0123456789abcdef";
      const auto byte = static_cast<unsigned char>(c);
      text += hex[byte >> 4];
      text += hex[byte & 15];
    }
    return text;
  }

  std::vector<recorded_exchange> exchanges_;
  std::string unknown_;
};

void ask_recorded_server(const transcript& t, torch_operation operation) {
  simulation sim(1, whole_segments());
  simulated_node host(sim, "host");
  simulated_node user(sim, "user");
  recorded_server server(t);
  host.spawn(server.serve(host));
  const std::string endpoint = host.process().address(transcript_port).text();
  tcp_store st(user.home(), endpoint);
  tcp_store other(user.home(), endpoint);
  user.spawn(operation(st, other));
  CHECK(sim.run_until([&] { return user.has_ended(); }));
  user.check();
  CHECK(server.differences() == "");
  user.end();
  host.end();
}

}  // namespace

TEST_CASE(
    "S1: our client asks servers of torch 2.6 and 2.14 in the bytes of their own "
    "clients, "
    "and reads what they replied") {
  for (const std::string version : {"2.6", "2.14"}) {
    for (const transcript& t : transcripts_of(version)) {
      // PyTorch's count of its members is none of our operations.
      if (t.name == "connect") continue;
      INFO("torch ", version, ", ", t.name);
      const auto found = torch_operations.find(t.name);
      REQUIRE(found != torch_operations.end());
      ask_recorded_server(t, found->second);
    }
  }
}

TEST_SUITE_END();
