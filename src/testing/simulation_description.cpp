#include <fmt/format.h>

#include <iterator>

#include "testing/simulation_machinery.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

namespace {

std::string_view name_of(process_state s) noexcept {
  switch (s) {
    case process_state::running:
      return "running";
    case process_state::stopped:
      return "stopped";
    case process_state::killed:
      return "killed";
    case process_state::released:
      break;
  }
  return "released";
}

std::string_view name_of(io_kind kind) noexcept {
  switch (kind) {
    case io_kind::accept:
      return "accept";
    case io_kind::connect:
      return "connect";
    case io_kind::receive:
      return "receive";
    case io_kind::send:
      return "send";
    case io_kind::read_at:
      return "read";
    case io_kind::readable:
      break;
  }
  return "readable";
}

double in_milliseconds(duration d) noexcept {
  return static_cast<double>(d.count()) / 1e6;
}

void describe_request(std::string& text, const simulated_network& net,
                      const io_request& request) {
  const bool is_file = request.kind == io_kind::read_at;
  if (is_file) {
    fmt::format_to(std::back_inserter(text), "  read of a file from byte {}",
                   request.offset);
  } else {
    fmt::format_to(std::back_inserter(text), "  {} on socket {}", name_of(request.kind),
                   static_cast<int>(request.socket));
  }
  if (const simulated_socket* s = is_file ? nullptr : net.find(request.socket)) {
    text += ", " + s->local.text();
    if (s->peer.is_valid()) text += " to " + s->peer.text();
    if (s->connection) {
      fmt::format_to(std::back_inserter(text),
                     ", unread {}, coming {}, on the wire {}, in the buffer {}",
                     s->incoming().unread(), s->incoming().flying(),
                     s->outgoing().flying(), s->outgoing().unsent());
      if (s->connection->stalled) text += ", link lost";
    }
  }
  if (request.engine.cancelled) text += ", cancelled";
  text += '\n';
}

}  // namespace

std::string simulation::describe() const {
  const machinery& m = *machinery_;
  std::string text =
      fmt::format("after {:.6f} ms and {} steps, {} events ahead\n",
                  in_milliseconds(elapsed()), steps(), m.clockwork.events_ahead());
  for (const auto& p : m.processes) {
    fmt::format_to(std::back_inserter(text), "{}: {}, {} sockets open\n", p->name(),
                   name_of(p->state()), p->open_sockets());
    for (const auto& r : m.reactors) {
      if (r->process != p.get() || !r->wakes_at) continue;
      fmt::format_to(std::back_inserter(text), "  timer in {:.6f} ms\n",
                     in_milliseconds(*r->wakes_at - now()));
    }
    for (const simulated_engine* e : p->engines_) {
      for (const io_request* request : e->in_flight()) {
        describe_request(text, m.network, *request);
      }
    }
  }
  return text;
}

}  // namespace manyworlds::inline v0
