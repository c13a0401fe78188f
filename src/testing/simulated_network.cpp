#include "testing/simulated_network.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <cerrno>

#include <algorithm>

#include "io/poll_budget.hpp"
#include "testing/simulated_engine.hpp"

namespace manyworlds::inline v0::detail {

namespace {

// 127.0.0.1 means the asking process itself; hosts begin behind it.
constexpr std::uint32_t first_host_address = 0x7f000002;

}  // namespace

socket_address simulated_network::address_of(std::size_t host, std::uint16_t port) {
  sockaddr_in native{};
  native.sin_family = AF_INET;
  native.sin_port = htons(port);
  native.sin_addr.s_addr = htonl(first_host_address + static_cast<std::uint32_t>(host));
  return *socket_address::from_native(reinterpret_cast<const sockaddr*>(&native),
                                      sizeof native);
}

std::optional<std::size_t> simulated_network::host_of(const simulated_process& from,
                                                      const socket_address& address) {
  if (!address.is_valid() || address.is_ipv6()) return std::nullopt;
  if (address.is_wildcard() || address.with_port(0) == socket_address::loopback(0)) {
    return from.host_;
  }
  sockaddr_storage native{};
  address.to_native(&native);
  const std::uint32_t number =
      ntohl(reinterpret_cast<const sockaddr_in&>(native).sin_addr.s_addr);
  if (number < first_host_address) return std::nullopt;
  return number - first_host_address;
}

simulated_socket* simulated_network::find(socket_handle handle) const noexcept {
  const int slot = static_cast<int>(handle) - first_handle;
  if (slot < 0 || static_cast<std::size_t>(slot) >= sockets_.size()) return nullptr;
  return sockets_[static_cast<std::size_t>(slot)].get();
}

simulated_socket* simulated_network::find(const simulated_process& p,
                                          socket_handle handle) const noexcept {
  simulated_socket* s = find(handle);
  return s && s->owner == &p ? s : nullptr;
}

simulated_socket& simulated_network::make_socket(simulated_process& p,
                                                 socket_handle& handle) {
  // Numbers are not used again, so that a stale handle never names another socket.
  handle = static_cast<socket_handle>(first_handle + static_cast<int>(sockets_.size()));
  simulated_socket& s = *sockets_.emplace_back(std::make_unique<simulated_socket>());
  s.owner = &p;
  return s;
}

std::uint16_t simulated_network::free_port(std::size_t host) {
  std::uint16_t& port = last_port_[host];
  do {
    ++port;
    if (port < first_free_port) port = first_free_port;
  } while (listeners_.count({host, port}) > 0);
  return port;
}

io_result simulated_network::listen(simulated_process& p, const socket_address& address,
                                    int backlog) {
  if (p.is_dead()) return io_result::failure(EPERM);
  if (address.is_ipv6()) return io_result::failure(EAFNOSUPPORT);
  if (p.open_sockets_ >= p.descriptor_limit_) return io_result::failure(EMFILE);
  if (host_of(p, address) != p.host_) return io_result::failure(EADDRNOTAVAIL);
  const std::uint16_t port = address.port() != 0 ? address.port() : free_port(p.host_);
  if (listeners_.count({p.host_, port}) > 0) return io_result::failure(EADDRINUSE);

  socket_handle handle;
  simulated_socket& s = make_socket(p, handle);
  s.at = simulated_socket::stage::listening;
  s.local = address_of(p.host_, port);
  s.backlog = static_cast<std::size_t>(std::max(backlog, 1));
  s.counted = true;
  ++p.open_sockets_;
  listeners_[{p.host_, port}] = handle;
  clockwork_.record(p.name_, "listen", static_cast<int>(handle), port);
  return io_result::success(static_cast<int>(handle));
}

io_result simulated_network::open_stream(simulated_process& p,
                                         const socket_address& peer) {
  if (p.is_dead()) return io_result::failure(EPERM);
  if (peer.is_ipv6()) return io_result::failure(EAFNOSUPPORT);
  if (p.open_sockets_ >= p.descriptor_limit_) return io_result::failure(EMFILE);
  socket_handle handle;
  simulated_socket& s = make_socket(p, handle);
  s.local = address_of(p.host_, free_port(p.host_));
  s.counted = true;
  ++p.open_sockets_;
  return io_result::success(static_cast<int>(handle));
}

void simulated_network::close(simulated_process& p, socket_handle handle) noexcept {
  simulated_socket* s = find(p, handle);
  if (!s) {
    // The kernel has closed a dead process's sockets already.
    if (p.is_dead()) return;
    simulated_contract_broken(p, "close of a socket that is not open", handle);
  }
  if (!p.is_dead() && (s->reading.request || s->writing.request || s->watching.request)) {
    simulated_contract_broken(p, "close with a request in flight", handle);
  }
  clockwork_.record(p.name_, "close", static_cast<int>(handle));
  MW_ASSERT(!s->counted || p.open_sockets_ > 0, "each open socket is counted");
  if (s->counted) --p.open_sockets_;
  const std::unique_ptr<simulated_socket> closed = std::move(
      sockets_[static_cast<std::size_t>(static_cast<int>(handle) - first_handle)]);
  if (closed->at == simulated_socket::stage::listening) {
    close_listener(*closed);
  } else if (closed->connection) {
    end_connection(*closed, p.is_dead() && clockwork_.random.one_in(2));
  }
}

void simulated_network::close_listener(simulated_socket& s) {
  listeners_.erase({s.owner->host_, s.local.port()});
  for (const socket_handle waiting : s.arrived) {
    const std::size_t slot =
        static_cast<std::size_t>(static_cast<int>(waiting) - first_handle);
    MW_ASSERT(slot < sockets_.size() && sockets_[slot],
              "a connection that waits to be accepted exists");
    const std::unique_ptr<simulated_socket> dropped = std::move(sockets_[slot]);
    end_connection(*dropped, true);
  }
}

void simulated_network::close_all(simulated_process& p) {
  for (std::size_t i = 0; i < sockets_.size(); ++i) {
    if (sockets_[i] && sockets_[i]->owner == &p) {
      close(p, static_cast<socket_handle>(first_handle + static_cast<int>(i)));
    }
  }
}

std::optional<io_result> simulated_network::attempt(simulated_process& p,
                                                    io_request& request) {
  simulated_socket* s = find(p, request.socket);
  if (!s) return io_result::failure(EBADF);
  switch (request.kind) {
    case io_kind::accept:
      return accept(p, *s);
    case io_kind::connect:
      return connect(request, *s);
    case io_kind::receive:
      return receive(p, request, *s);
    case io_kind::send:
      return send(request, *s);
    case io_kind::read_at:
      MW_ASSERT(false, "a file is on no network");
      return io_result::failure(EINVAL);
    case io_kind::readable:
      break;
  }
  const bool ready =
      s->at == simulated_socket::stage::broken || !s->arrived.empty() ||
      (s->connection && (s->incoming().unread() > 0 || s->incoming().end_arrived));
  if (!ready) return std::nullopt;
  return io_result::success(0);
}

std::optional<io_result> simulated_network::accept(simulated_process& p,
                                                   simulated_socket& s) {
  if (s.at != simulated_socket::stage::listening) return io_result::failure(EINVAL);
  if (s.arrived.empty()) return std::nullopt;
  if (p.open_sockets_ >= p.descriptor_limit_) return io_result::failure(EMFILE);
  const socket_handle accepted = s.arrived.front();
  s.arrived.pop_front();
  MW_ASSERT(find(accepted) && !find(accepted)->counted,
            "a connection is accepted once, and is there until then");
  find(accepted)->counted = true;
  ++p.open_sockets_;
  return io_result::success(static_cast<int>(accepted));
}

std::optional<io_result> simulated_network::connect(io_request& request,
                                                    simulated_socket& s) {
  using stage = simulated_socket::stage;
  if (s.at == stage::connected) return io_result::success(0);
  if (s.at == stage::broken) {
    return io_result::failure(s.error ? std::exchange(s.error, 0) : ECONNABORTED);
  }
  if (s.at == stage::listening) return io_result::failure(EISCONN);
  if (s.at == stage::fresh) {
    const std::optional<std::size_t> host = host_of(*s.owner, request.address);
    if (!host || hosts_.count(*host) == 0) return io_result::failure(EHOSTUNREACH);
    s.at = stage::connecting;
    s.peer = address_of(*host, request.address.port());
    s.dialled = clockwork_.now;
    dial(request.socket, s);
  }
  return std::nullopt;
}

std::optional<io_result> simulated_network::receive(simulated_process& p,
                                                    io_request& request,
                                                    simulated_socket& s) {
  using stage = simulated_socket::stage;
  if (s.at != stage::connected && s.at != stage::broken)
    return io_result::failure(ENOTCONN);
  const std::size_t wanted = bytes_of(request);
  if (wanted == 0) return io_result::success(0);
  if (s.connection && s.incoming().unread() > 0) {
    const std::size_t allowed = may_read(p, std::min(wanted, s.incoming().unread()));
    if (allowed == 0) return std::nullopt;
    const std::size_t count =
        s.incoming().read(request.buffers, request.buffer_count, shorten(allowed));
    MW_ASSERT(count <= allowed, "a read takes no more than it may");
    if (p.bytes_per_millisecond_ > 0) p.readable_now_ -= count;
    send_what_fits(s.connection, 1 - s.side);
    return io_result::success(static_cast<std::int64_t>(count));
  }
  if (s.connection && s.incoming().end_arrived) return io_result::success(0);
  if (s.at == stage::broken) {
    if (s.error) return io_result::failure(std::exchange(s.error, 0));
    return io_result::success(0);
  }
  return std::nullopt;
}

std::optional<io_result> simulated_network::send(io_request& request,
                                                 simulated_socket& s) {
  using stage = simulated_socket::stage;
  if (s.at == stage::broken) {
    return io_result::failure(s.error ? std::exchange(s.error, 0) : EPIPE);
  }
  if (s.at != stage::connected) return io_result::failure(ENOTCONN);
  simulated_pipe& out = s.outgoing();
  if (out.end_wanted) return io_result::failure(EPIPE);
  const std::size_t wanted = bytes_of(request);
  if (wanted == 0) return io_result::success(0);
  const std::size_t held = out.unsent() + out.flying();
  if (held >= clockwork_.options.send_buffer) return std::nullopt;
  const std::size_t room = std::min(wanted, clockwork_.options.send_buffer - held);
  const std::size_t count =
      out.write(request.buffers, request.buffer_count, shorten(room));
  send_what_fits(s.connection, s.side);
  return io_result::success(static_cast<std::int64_t>(count));
}

std::size_t simulated_network::shorten(std::size_t bytes) {
  if (!clockwork_.options.short_transfers || !clockwork_.random.one_in(4)) return bytes;
  return clockwork_.random.up_to(bytes);
}

// The reads of a slow reader are counted by whole milliseconds. One event serves all its
// sockets.
std::size_t simulated_network::may_read(simulated_process& p, std::size_t wanted) {
  if (p.bytes_per_millisecond_ == 0) return wanted;
  if (clockwork_.now >= p.readable_since_ + std::chrono::milliseconds(1)) {
    p.readable_since_ = clockwork_.now;
    p.readable_now_ = p.bytes_per_millisecond_;
  }
  if (p.readable_now_ == 0 && !p.refill_awaited_) {
    p.refill_awaited_ = true;
    clockwork_.at(p.readable_since_ + std::chrono::milliseconds(1), [&p] {
      p.refill_awaited_ = false;
      for (simulated_engine* e : p.engines_) e->wake();
    });
  }
  return std::min(wanted, p.readable_now_);
}

// --- socket pairs within one host

std::pair<socket_handle, socket_handle> simulated_network::make_pair(
    simulated_process& a, simulated_process& b) {
  simulated_process* const owners[] = {&a, &b};
  socket_handle ends[] = {socket_handle::none, socket_handle::none};
  for (const simulated_process* p : owners) {
    if (p->is_dead() || p->open_sockets_ >= p->descriptor_limit_)
      return {ends[0], ends[1]};
  }
  auto c = std::make_shared<simulated_connection>();
  c->is_local = true;
  for (std::size_t side : {std::size_t{0}, std::size_t{1}}) {
    simulated_socket& s = make_socket(*owners[side], ends[side]);
    s.at = simulated_socket::stage::connected;
    s.counted = true;
    ++owners[side]->open_sockets_;
    s.connection = c;
    s.side = side;
    c->ends[side] = ends[side];
    c->processes[side] = owners[side];
  }
  clockwork_.record(a.name_, "pair", static_cast<int>(ends[0]),
                    static_cast<std::uint64_t>(ends[1]));
  return {ends[0], ends[1]};
}

void simulated_network::send_byte(simulated_process& p, socket_handle handle) noexcept {
  simulated_socket* s = find(p, handle);
  if (!s || s->at != simulated_socket::stage::connected) return;
  simulated_pipe& out = s->outgoing();
  if (out.end_wanted || out.unsent() + out.flying() >= clockwork_.options.send_buffer)
    return;
  std::byte one{1};
  const iovec place{&one, 1};
  (void)out.write(&place, 1, 1);
  send_what_fits(s->connection, s->side);
}

bool simulated_network::has_ended(const simulated_process& p,
                                  socket_handle handle) const noexcept {
  simulated_socket* s = find(p, handle);
  if (!s) return true;
  if (s->connection && s->incoming().unread() > 0) return false;
  return s->at == simulated_socket::stage::broken ||
         (s->connection && s->incoming().end_arrived);
}

}  // namespace manyworlds::inline v0::detail
