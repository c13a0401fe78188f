// Whatever is at the other end of a store's connection, in virtual time: a server keeps
// serving others and nothing of a stranger, a client's operations end in their time.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "input.hpp"
#include "link/wire.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/store/tcp_store.hpp"
#include "simulation/simulated_node.hpp"
#include "store/tcp_store_protocol.hpp"
#include "store/tcp_store_server.hpp"

using namespace manyworlds;
using namespace std::chrono_literals;
using fuzzing::input;
using fuzzing::must;
using manyworlds_tests::simulated_node;

namespace {

constexpr std::uint16_t port = 29500;
constexpr int most_steps = 64;
constexpr store_limits limits{64, 1024, 8, 4096};

bytes some_of(input& in) {
  bytes data(in.take<std::uint8_t>());
  in.take_into(data);
  return data;
}

task<void> pause(input& in) { co_await sleep_for(1ms * in.take<std::uint8_t>()); }

/// What has come by then, if anything; false at the stream's end.
task<bool> hear(stream& s, bytes& heard) {
  bytes buffer(512);
  try {
    const io_result got = co_await within(s.receive_some(buffer), 5ms);
    if (!got.ok() || got.count() == 0) co_return false;
    heard.assign(buffer.begin(),
                 buffer.begin() + static_cast<std::ptrdiff_t>(got.count()));
  } catch (const timed_out&) {}
  co_return true;
}

task<void> say(stream& s, std::span<const std::byte> data) {
  try {
    (void)co_await within(s.send_all(data), 5ms);
  } catch (const timed_out&) {}
}

// --- a client that lies

bytes request_of(input& in) {
  tcp_store_message m(static_cast<tcp_store_opcode>(in.take<std::uint8_t>() % 19));
  if (m.opcode == tcp_store_opcode::validate) m.number = tcp_store_magic;
  const unsigned size = in.take<std::uint8_t>();
  m.keys.assign(1 + size % 4, "/" + std::to_string(size / 64));
  m.values.assign(4, std::string(size, '1'));
  std::string text;
  encode(m, text);
  const auto raw = std::as_bytes(std::span(text));
  return {raw.begin(), raw.end()};
}

task<void> lie_to_server(reactor& home, socket_address server, input& in) {
  stream s;
  bytes heard;
  for (int i = 0; i < most_steps && !in.ended(); ++i) {
    const unsigned what = in.take<std::uint8_t>() % 8;
    if (!s.is_open() || what == 0) {
      s = stream();
      if (!(co_await stream::connect(home, server, s)).ok()) co_return;
    }
    bytes data;
    if (what == 1) co_await pause(in);
    if (what == 2) (void)co_await hear(s, heard);
    if (what == 3) s.shut_down_sending();
    if (what == 4) data = some_of(in);
    if (what > 4) data = request_of(in);
    co_await say(s, data);
  }
}

task<void> use_honestly(tcp_store& st) {
  for (int i = 0; i < 5; ++i) {
    co_await st.set("honest", std::to_string(i));
    (void)co_await st.try_get("honest");
    co_await sleep_for(20ms);
  }
}

void attack_server(input in) {
  simulation sim(1);
  simulated_node host(sim, "host");
  simulated_node stranger(sim, "stranger");
  simulated_node user(sim, "user");
  tcp_store_server_options options;
  options.limits = limits;
  options.connection_bytes = 128 * 1024;
  options.stall_limit = options.handshake_limit = 50ms;
  const socket_address address = host.process().address(port);
  tcp_store_server server(host.home(), address, options);
  host.spawn(server.serve());
  tcp_store_options of_user;
  of_user.seed = 1;
  tcp_store st(user.home(), address.text(), of_user);
  user.spawn(use_honestly(st));
  stranger.spawn(lie_to_server(stranger.home(), address, in));
  must(sim.run_until([&] { return stranger.has_ended() && user.has_ended(); }, 60s));
  user.check();
  server.stop();
  must(sim.run_until([&] { return host.has_ended(); }, 60s));
  must(server.connections() == 0 && server.held_bytes() == 0);
  user.end();
}

// --- a server that lies

task<void> lie_to_client(reactor& home, manyworlds::socket accepted, input& in) {
  stream s(home, std::move(accepted));
  bytes heard;
  for (int i = 0; i < most_steps; ++i) {
    const unsigned what = in.take<std::uint8_t>() % 8;
    // What is not said is not answered, until the client gives up.
    if (in.ended() && i > 0) co_await sleep_for(100ms);
    bytes data;
    if (what == 0 && !co_await hear(s, heard)) co_return;
    if (what == 1) co_await pause(in);
    if (what == 2) co_return;
    if (what == 3) data = some_of(in);
    if (what == 4) {
      // A ping stands last.
      data.assign(heard.end() -
                      static_cast<std::ptrdiff_t>(std::min<std::size_t>(heard.size(), 4)),
                  heard.end());
    }
    if (what == 5) data = bytes(1, static_cast<std::byte>(in.take<std::uint8_t>()));
    if (what > 5) {
      wire_writer out;
      const auto size = in.take<std::uint8_t>();
      // A number, or a text of that size, or of another.
      out.put(what == 6 ? std::uint64_t{size} : in.take<std::uint64_t>());
      if (what == 6) out.put_raw(bytes(size, std::byte{'1'}));
      data = out.take();
    }
    co_await say(s, data);
  }
}

task<void> lie_to_clients(reactor& home, listener& door, input& in) {
  auto body = [&](scope& s) -> task<void> {
    for (;;) {
      const io_result accepted = co_await door.accept();
      if (!accepted.ok()) co_return;
      s.spawn(
          lie_to_client(home, manyworlds::socket(home.sockets(), accepted.handle()), in));
    }
  };
  co_await scope::run(body);
}

/// However it ends, it does so in time.
template <class T>
task<void> ended(reactor& home, task<T> operation, duration limit) {
  const time_point begun = home.now();
  try {
    (void)co_await std::move(operation);
  } catch (const store_error&) {}
  must(home.now() - begun <= limit + 1s);
}
task<bool> done(task<void> operation) {
  co_await std::move(operation);
  co_return true;
}

task<void> use_in_vain(reactor& home, tcp_store& st) {
  constexpr duration limit = 300ms;
  co_await ended(home, done(st.set("key", "value", limit)), limit);
  co_await ended(home, st.get("key", limit), limit);
  co_await ended(home, st.add("key", 1, limit), limit);
  co_await ended(home, st.compare_set("key", "a", "b", limit), limit);
  co_await ended(home, st.try_get("key", limit), limit);
  co_await ended(home, st.check({"key", "other"}, limit), limit);
  co_await ended(home, st.erase("key", limit), limit);
  co_await ended(home, done(st.wait({"key", "other"}, limit)), limit);
  co_await ended(home, st.num_keys(limit), limit);
}

void attack_client(input in) {
  simulation sim(1);
  simulated_node stranger(sim, "stranger");
  simulated_node user(sim, "user");
  const socket_address address = stranger.process().address(port);
  listener door(stranger.home(), address);
  stranger.spawn(lie_to_clients(stranger.home(), door, in));
  tcp_store_options options;
  options.limits = limits;
  options.seed = 1;
  options.probe_interval = options.answer_limit = 50ms;
  tcp_store st(user.home(), address.text(), options);
  user.spawn(use_in_vain(user.home(), st));
  must(sim.run_until([&] { return user.has_ended(); }, 60s));
  user.check();
  user.end();
  stranger.end();
}

}  // namespace

// First who lies, then what it does.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  input in(data, size);
  in.take<std::uint8_t>() % 2 == 0 ? attack_server(in) : attack_client(in);
  return 0;
}
