// Simulated network faults: what can go wrong between processes.
#include "testing/simulated_network.hpp"

#include <algorithm>

namespace manyworlds::inline v0::detail {

namespace {

bool lies_between(const simulated_connection& c, const simulated_process& a,
                  const simulated_process& b) noexcept {
  return (c.processes[0] == &a && c.processes[1] == &b) ||
         (c.processes[0] == &b && c.processes[1] == &a);
}

}  // namespace

template <class F>
void simulated_network::each_connection_between(const simulated_process& a,
                                                const simulated_process& b, F&& f) {
  for (const std::weak_ptr<simulated_connection>& known : connections_) {
    const std::shared_ptr<simulated_connection> c = known.lock();
    if (c && lies_between(*c, a, b)) f(c);
  }
}

void simulated_network::block(std::size_t from, std::size_t to) {
  blocked_.insert({from, to});
}

void simulated_network::lose_link(const simulated_process& a,
                                  const simulated_process& b) {
  each_connection_between(a, b, [](const auto& c) { c->stalled = true; });
}

void simulated_network::heal(const simulated_process& a, const simulated_process& b) {
  blocked_.erase({a.index_, b.index_});
  blocked_.erase({b.index_, a.index_});
  each_connection_between(a, b, [&](const auto& c) {
    c->stalled = false;
    for (std::size_t side : {std::size_t{0}, std::size_t{1}}) {
      if (c->pipes[side].flight.empty()) continue;
      // As if it was sent again: no earlier than the way takes.
      const time_point again =
          clockwork_.now + travel_time(*c->processes[side], *c->processes[1 - side]);
      for (simulated_segment& segment : c->pipes[side].flight) {
        segment.arrival = std::max(segment.arrival, again);
        expect(c, side, segment.arrival);
      }
    }
  });
}

void simulated_network::cut(const simulated_process& a, const simulated_process& b) {
  each_connection_between(a, b, [&](const auto& c) {
    for (std::size_t side : {std::size_t{0}, std::size_t{1}}) {
      const time_point when =
          clockwork_.now + travel_time(*c->processes[1 - side], *c->processes[side]);
      clockwork_.at(when, [this, c, side] {
        if (simulated_socket* s = find(c->ends[side])) break_end(*s);
      });
    }
  });
}

void simulated_network::delay(std::size_t from, std::size_t to, duration latency,
                              duration jitter) {
  delays_[{from, to}] = {latency, jitter};
}

}  // namespace manyworlds::inline v0::detail
