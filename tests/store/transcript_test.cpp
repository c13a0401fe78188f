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

template <class T>
task<bool> ends_at_its_limit(task<T> operation) {
  try {
    (void)co_await std::move(operation);
  } catch (const store_error& e) {
    co_return e.kind() == store_error_kind::timed_out;
  }
  co_return false;
}
task<bool> as_true(task<void> operation) {
  co_await std::move(operation);
  co_return true;
}

using strings = std::vector<std::string>;

// What record.py does, with our client. Results that are awaited have names of their own,
// as g++ 12 has defects with temporaries there.

task<void> do_set(tcp_store& st) {
  const std::string bytes("\0\xff\r\n\x7f", 5);
  co_await st.set("k", "v");
  co_await st.set("empty", "");
  co_await st.set("bytes", bytes);
  co_await st.set("schlüssel", "größe");
  co_await st.set("k", "w");
  const std::int64_t count = co_await st.num_keys();
  CHECK(count == 4);
}

task<void> do_get(tcp_store& st) {
  co_await st.set("k", "value");
  co_await st.set("empty", "");
  const std::string value = co_await st.get("k", 1s);
  const std::string empty = co_await st.get("empty", 1s);
  CHECK(value == "value");
  CHECK(empty == "");
}

task<void> do_get_blocked(tcp_store& st) {
  const std::string value = co_await st.get("k", 1s);
  CHECK(value == "value");
  co_await st.set("k", "value");
}

task<void> do_add(tcp_store& st) {
  std::vector<std::int64_t> sums;
  for (const std::int64_t by : {5L, -7L, 0L, 1L << 40}) {
    const std::int64_t sum = co_await st.add("n", by);
    sums.push_back(sum);
  }
  CHECK(sums == std::vector<std::int64_t>{5, -2, -2, (1L << 40) - 2});
  const std::string text = co_await st.get("n", 1s);
  CHECK(text == "1099511627774");
}

task<void> do_check(tcp_store& st) {
  const strings each{"k"};
  const strings not_all{"k", "none"};
  const strings twice{"k", "k"};
  co_await st.set("k", "v");
  const bool is_set = co_await st.check(each);
  const bool are_set = co_await st.check(not_all);
  const bool is_set_twice = co_await st.check(twice);
  CHECK(is_set);
  CHECK(!are_set);
  CHECK(is_set_twice);
}

task<void> do_wait(tcp_store& st) {
  const strings one{"a"};
  const strings both{"a", "b"};
  co_await st.set("a", "1");
  co_await st.set("b", "2");
  co_await st.wait(one, 1s);
  co_await st.wait(both, 1s);
}

task<void> do_wait_blocked(tcp_store& st) {
  const strings both{"a", "b"};
  co_await st.wait(both, 1s);
  co_await st.set("a", "1");
  const std::int64_t sum = co_await st.add("b", 1);
  CHECK(sum == 1);
}

task<void> do_wait_timeout(tcp_store& st) {
  const strings never{"never"};
  const bool timed_out = co_await ends_at_its_limit(as_true(st.wait(never, 100ms)));
  const std::int64_t sum = co_await st.add("n", 1);
  CHECK(timed_out);
  CHECK(sum == 1);
}

task<void> do_compare_set(tcp_store& st) {
  strings found;
  const std::vector<strings> words{
      {"x", "y"}, {"", "1"}, {"2", "3"}, {"1", "4"}, {"", "5"}};
  for (const strings& each : words) {
    const std::string now = co_await st.compare_set("k", each[0], each[1]);
    found.push_back(now);
  }
  CHECK(found == strings{"x", "1", "1", "4", "4"});
}

task<void> do_delete_key(tcp_store& st) {
  co_await st.set("k", "v");
  const bool was_set = co_await st.erase("k");
  const bool is_still_set = co_await st.erase("k");
  CHECK(was_set);
  CHECK(!is_still_set);
}

task<void> do_num_keys(tcp_store& st) {
  const std::int64_t before = co_await st.num_keys();
  co_await st.set("k", "v");
  const std::int64_t after = co_await st.num_keys();
  CHECK(before == 0);
  CHECK(after == 1);
}

task<void> do_append(tcp_store& st) {
  co_await st.append("k", "one");
  co_await st.append("k", ", two");
  const std::string value = co_await st.get("k", 1s);
  CHECK(value == "one, two");
}

task<void> do_multi_get(tcp_store& st) {
  const strings keys{"a", "b", "a"};
  co_await st.set("a", "1");
  co_await st.set("b", "");
  const strings values = co_await st.multi_get(keys, 1s);
  CHECK(values == strings{"1", "", "1"});
}

task<void> do_multi_set(tcp_store& st) {
  const std::vector<store_entry> entries{{"a", "1"}, {"b", ""}};
  co_await st.multi_set(entries);
  const std::string value = co_await st.get("a", 1s);
  CHECK(value == "1");
}

task<void> do_queue_push(tcp_store& st) {
  co_await st.push("q", "first");
  co_await st.push("q", "");
  const std::int64_t size = co_await st.queue_size("q");
  const std::int64_t none = co_await st.queue_size("none");
  CHECK(size == 2);
  CHECK(none == 0);
}

task<void> do_queue_pop(tcp_store& st) {
  co_await st.push("q", "first");
  co_await st.push("q", "second");
  const std::string first = co_await st.pop("q", 1s);
  const std::optional<std::string> second = co_await st.try_pop("q");
  CHECK(first == "first");
  CHECK(second == "second");
}

task<void> do_queue_pop_blocked(tcp_store& st) {
  const std::string value = co_await st.pop("q", 1s);
  CHECK(value == "value");
  co_await st.push("q", "value");
}

task<void> do_list_keys(tcp_store& st) {
  co_await st.set("only", "1");
  const strings keys = co_await st.keys();
  CHECK(keys == strings{"only"});
}

task<void> do_barrier(tcp_store& st) {
  co_await st.barrier("all", 2, 1s);
  co_await st.barrier("all", 2, 1s);
}

task<void> do_barrier_timeout(tcp_store& st) {
  const bool timed_out = co_await ends_at_its_limit(as_true(st.barrier("all", 2, 100ms)));
  const std::int64_t sum = co_await st.add("n", 1);
  CHECK(timed_out);
  CHECK(sum == 1);
}

const std::map<std::string, task<void> (*)(tcp_store&)> operations_of_client{
    {"add", do_add},
    {"append", do_append},
    {"barrier", do_barrier},
    {"barrier_timeout", do_barrier_timeout},
    {"check", do_check},
    {"compare_set", do_compare_set},
    {"delete_key", do_delete_key},
    {"get", do_get},
    {"get_blocked", do_get_blocked},
    {"list_keys", do_list_keys},
    {"multi_get", do_multi_get},
    {"multi_set", do_multi_set},
    {"num_keys", do_num_keys},
    {"queue_pop", do_queue_pop},
    {"queue_pop_blocked", do_queue_pop_blocked},
    {"queue_push", do_queue_push},
    {"set", do_set},
    {"wait", do_wait},
    {"wait_blocked", do_wait_blocked},
    {"wait_timeout", do_wait_timeout},
};

void ask_recorded_server(const transcript& t, task<void> (*operation)(tcp_store&)) {
  simulation sim(1, whole_segments());
  simulated_node host(sim, "host");
  simulated_node user(sim, "user");
  recorded_server server(t);
  host.spawn(server.serve(host));
  tcp_store st(user.home(), host.process().address(transcript_port).text());
  user.spawn(operation(st));
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
      const auto found = operations_of_client.find(t.name);
      REQUIRE(found != operations_of_client.end());
      ask_recorded_server(t, found->second);
    }
  }
}

TEST_SUITE_END();
