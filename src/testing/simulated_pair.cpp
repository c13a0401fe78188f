// Simulated pair: socket pairs within one host.
#include "testing/simulated_network.hpp"

namespace manyworlds::inline v0::detail {

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

}  // namespace manyworlds::inline v0::detail
