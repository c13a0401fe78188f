// Simulated connections: how they come about, what travels on them, and how they end.
#include <cerrno>

#include <algorithm>
#include <string_view>

#include "testing/simulated_engine.hpp"

namespace manyworlds::inline v0::detail {

namespace {

constexpr duration first_patience = std::chrono::seconds(1);
constexpr duration last_patience = std::chrono::seconds(16);
constexpr duration longest_local_way = std::chrono::microseconds(20);

std::string_view arrival_of(segment_kind kind) noexcept {
  switch (kind) {
    case segment_kind::data:
      return "data arrives";
    case segment_kind::established:
      return "answer arrives";
    case segment_kind::end:
      return "end arrives";
    case segment_kind::reset:
      return "reset arrives";
  }
  return "something arrives";
}

}  // namespace

void simulated_network::notify(const simulated_socket::request_slot& slot) noexcept {
  if (slot.engine) slot.engine->wake();
}

void simulated_network::notify_all(const simulated_socket& s) noexcept {
  notify(s.reading);
  notify(s.writing);
  notify(s.watching);
}

duration simulated_network::travel_time(const simulated_process& from,
                                        const simulated_process& to) {
  delays d{clockwork_.options.latency, clockwork_.options.jitter};
  if (const auto own = delays_.find({from.index_, to.index_}); own != delays_.end()) {
    d = own->second;
  }
  // Whole microseconds, so that arrivals and timers fall on the same instant now and
  // then.
  return d.latency + std::chrono::floor<std::chrono::microseconds>(
                         clockwork_.random.at_most(d.jitter));
}

bool simulated_network::is_held(const simulated_connection& c, std::size_t side) const {
  if (c.is_local) return false;
  return c.stalled ||
         blocked_.count({c.processes[side]->index_, c.processes[1 - side]->index_}) > 0;
}

// ---------------------------------------------------------------------------------------
// Connecting. What is lost on the way is sent again, with growing patience, as TCP does.

void simulated_network::dial(socket_handle client, simulated_socket& s) {
  simulated_process& host = *hosts_.at(*host_of(*s.owner, s.peer));
  clockwork_.record(s.owner->name_, "dial", static_cast<int>(client), s.peer.port());
  clockwork_.at(clockwork_.now + travel_time(*s.owner, host),
                [this, client] { dial_arrives(client, first_patience); });
}

void simulated_network::dial_arrives(socket_handle client, duration patience) {
  simulated_socket* s = find(client);
  if (!s || s->at != simulated_socket::stage::connecting) return;
  const std::size_t host = *host_of(*s->owner, s->peer);
  const auto found = listeners_.find({host, s->peer.port()});
  simulated_socket* listening = found == listeners_.end() ? nullptr : find(found->second);
  const simulated_process& there = listening ? *listening->owner : *hosts_.at(host);
  const std::size_t here = s->owner->index_;
  if (blocked_.count({here, there.index_}) > 0) return dial_again(client, patience);
  if (!listening) {
    // A refusal that is held is not heard.
    if (blocked_.count({there.index_, here}) > 0) return dial_again(client, patience);
    clockwork_.at(clockwork_.now + travel_time(there, *s->owner),
                  [this, client] { dial_refused(client); });
    return;
  }
  if (listening->arrived.size() >= listening->backlog)
    return dial_again(client, patience);
  connect_to(*listening, client, *s);
}

void simulated_network::dial_again(socket_handle client, duration patience) {
  simulated_socket& s = *find(client);
  const time_point limit = s.dialled + clockwork_.options.connect_limit;
  if (clockwork_.now >= limit) {
    s.at = simulated_socket::stage::broken;
    s.error = ETIMEDOUT;
    return notify_all(s);
  }
  clockwork_.at(std::min(limit, clockwork_.now + patience), [this, client, patience] {
    dial_arrives(client, std::min(2 * patience, last_patience));
  });
}

void simulated_network::dial_refused(socket_handle client) {
  simulated_socket* s = find(client);
  if (!s || s->at != simulated_socket::stage::connecting) return;
  s->at = simulated_socket::stage::broken;
  s->error = ECONNREFUSED;
  clockwork_.record(s->owner->name_, "refused", static_cast<int>(client));
  notify_all(*s);
}

void simulated_network::connect_to(simulated_socket& listening, socket_handle client,
                                   simulated_socket& s) {
  socket_handle server;
  simulated_socket& there = make_socket(*listening.owner, server);
  there.at = simulated_socket::stage::connected;
  there.local = listening.local;
  there.peer = s.local;
  auto c = std::make_shared<simulated_connection>();
  c->ends[0] = client;
  c->ends[1] = server;
  c->processes[0] = s.owner;
  c->processes[1] = there.owner;
  s.connection = there.connection = c;
  s.side = 0;
  there.side = 1;
  if (connections_.size() >= connections_kept_) {
    std::erase_if(connections_, [](const auto& old) { return old.expired(); });
    connections_kept_ = 2 * connections_.size() + 1;
  }
  connections_.push_back(c);

  clockwork_.record(there.owner->name_, "connection", static_cast<int>(server));
  listening.arrived.push_back(server);
  notify(listening.reading);
  notify(listening.watching);
  launch(c, 1, segment_kind::established, 0);
}

// ---------------------------------------------------------------------------------------
// Travelling.

void simulated_network::send_what_fits(const std::shared_ptr<simulated_connection>& c,
                                       std::size_t side) {
  MW_ASSERT(c && side < 2, "a connection has two sides");
  simulated_pipe& pipe = c->pipes[side];
  if (pipe.reset_sent || pipe.end_sent) return;
  for (;;) {
    const std::size_t on_the_way = pipe.unread() + pipe.flying();
    const std::size_t window = clockwork_.options.receive_window;
    if (pipe.unsent() == 0 || on_the_way >= window) break;
    std::size_t bytes = std::min({pipe.unsent(), window - on_the_way, longest_segment});
    if (clockwork_.options.split_segments && clockwork_.random.one_in(8))
      bytes = clockwork_.random.up_to(bytes);
    pipe.depart(bytes);
    launch(c, side, segment_kind::data, bytes);
  }
  if (pipe.end_wanted && pipe.unsent() == 0) {
    pipe.end_sent = true;
    launch(c, side, segment_kind::end, 0);
  }
}

void simulated_network::launch(const std::shared_ptr<simulated_connection>& c,
                               std::size_t side, segment_kind kind, std::size_t bytes) {
  simulated_pipe& pipe = c->pipes[side];
  pipe.wire_free = std::max(pipe.wire_free, clockwork_.now);
  if (const std::uint64_t rate = clockwork_.options.bytes_per_second; rate > 0) {
    const double seconds = static_cast<double>(bytes) / static_cast<double>(rate);
    pipe.wire_free += duration(static_cast<std::int64_t>(seconds * 1e9));
  }
  const duration way = c->is_local
                           ? clockwork_.random.at_most(longest_local_way)
                           : travel_time(*c->processes[side], *c->processes[1 - side]);
  const time_point arrival = pipe.wire_free + way;
  // A segment that would overtake others waits in the queue for those before it.
  pipe.flight.push_back({kind, bytes, arrival});
  expect(c, side, arrival);
}

void simulated_network::expect(const std::shared_ptr<simulated_connection>& c,
                               std::size_t side, time_point arrival) {
  clockwork_.at(arrival, [this, c, side] { arrive(c, side); });
}

void simulated_network::arrive(const std::shared_ptr<simulated_connection>& c,
                               std::size_t side) {
  std::deque<simulated_segment>& flight = c->pipes[side].flight;
  while (!flight.empty() && flight.front().arrival <= clockwork_.now &&
         !is_held(*c, side)) {
    const simulated_segment segment = flight.front();
    flight.pop_front();
    land(c, side, segment);
  }
}

void simulated_network::land(const std::shared_ptr<simulated_connection>& c,
                             std::size_t side, const simulated_segment& segment) {
  simulated_pipe& pipe = c->pipes[side];
  simulated_socket* receiver = find(c->ends[1 - side]);
  clockwork_.record(c->processes[1 - side]->name_, arrival_of(segment.kind),
                    static_cast<int>(c->ends[1 - side]), segment.bytes);
  if (segment.kind == segment_kind::data) pipe.land(segment.bytes);
  if (!receiver || receiver->at == simulated_socket::stage::broken) {
    pipe.discard_unread();
    // A host without that socket answers with a reset, but never answers a reset.
    if (!receiver && (segment.kind == segment_kind::data ||
                      segment.kind == segment_kind::established)) {
      send_reset(c, 1 - side);
    }
    return;
  }
  switch (segment.kind) {
    case segment_kind::data:
      notify(receiver->reading);
      notify(receiver->watching);
      if (simulated_socket* sender = find(c->ends[side])) notify(sender->writing);
      break;
    case segment_kind::established:
      receiver->at = simulated_socket::stage::connected;
      notify(receiver->writing);
      break;
    case segment_kind::end:
      pipe.end_arrived = true;
      notify(receiver->reading);
      notify(receiver->watching);
      break;
    case segment_kind::reset:
      break_end(*receiver);
      break;
  }
}

// ---------------------------------------------------------------------------------------
// Ending.

void simulated_network::shut_down_sending(socket_handle handle) noexcept {
  simulated_socket* s = find(handle);
  if (!s || s->at != simulated_socket::stage::connected) return;
  s->outgoing().end_wanted = true;
  clockwork_.record(s->owner->name_, "end", static_cast<int>(handle));
  notify(s->writing);
  send_what_fits(s->connection, s->side);
}

void simulated_network::send_reset(const std::shared_ptr<simulated_connection>& c,
                                   std::size_t side) {
  MW_ASSERT(side < 2, "a connection has two sides");
  simulated_pipe& pipe = c->pipes[side];
  if (std::exchange(pipe.reset_sent, true)) return;
  pipe.discard_unsent();
  launch(c, side, segment_kind::reset, 0);
}

// Bytes that came before a reset may still be read, or may be gone: Linux keeps them,
// other systems do not.
void simulated_network::break_end(simulated_socket& s) {
  if (s.at == simulated_socket::stage::broken) return;
  s.error = s.incoming().end_arrived ? EPIPE : ECONNRESET;
  s.at = simulated_socket::stage::broken;
  s.outgoing().discard_unsent();
  if (clockwork_.random.one_in(2)) s.incoming().discard_unread();
  clockwork_.record(s.owner->name_, "reset",
                    static_cast<int>(s.connection->ends[s.side]));
  notify_all(s);
}

// The closed socket can no longer be found. A close before all bytes were read resets the
// connection (tcp(7), RFC 2525 2.17): the peer must not take its bytes for read.
void simulated_network::end_connection(simulated_socket& s, bool reset) {
  if (s.at == simulated_socket::stage::broken) return;
  if (s.at == simulated_socket::stage::connecting) return;
  simulated_pipe& in = s.incoming();
  if (reset || in.unread() > 0) {
    in.discard_unread();
    return send_reset(s.connection, s.side);
  }
  s.outgoing().end_wanted = true;
  send_what_fits(s.connection, s.side);
}

}  // namespace manyworlds::inline v0::detail
