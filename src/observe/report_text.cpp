#include <fmt/format.h>
#include <fmt/ranges.h>

#include "duration_text.hpp"
#include "observe/report.hpp"

namespace manyworlds::inline v0::detail {

namespace {

class text_writer {
 public:
  template <class... Args>
  void line(int indent, fmt::format_string<Args...> format, Args&&... args) {
    text_.append(static_cast<std::size_t>(indent) * 2, ' ');
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    text_ += '\n';
  }
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

std::string_view file_of(std::string_view path) {
  const auto slash = path.rfind('/');
  return slash == path.npos ? path : path.substr(slash + 1);
}

std::string what(const operation_report& o) {
  std::string text(name_of(o.kind));
  if (!is_message(o.kind) && o.kind != operation_kind::arrival) return text;
  text += o.kind == operation_kind::send ? " to " : " from ";
  text += o.peer == no_rank ? std::string("any") : fmt::format("rank {}", o.peer);
  return text + fmt::format(" on lane {}", o.lane);
}

/// Writes how many turns took how long: the first entry is below one microsecond, then
/// by doubling.
void write_times(text_writer& out, std::string_view part, const time_histogram& times) {
  if (times.count() == 0) return;
  std::string all;
  for (std::size_t b = 0; b < times.buckets; ++b) {
    if (times.counts[b] == 0) continue;
    const bool is_last = b + 1 == times.buckets;
    fmt::format_to(std::back_inserter(all), "{}{} {} {}", all.empty() ? "" : ", ",
                   times.counts[b], is_last ? "longer than" : "under",
                   duration_text(times.begin_of(is_last ? b : b + 1)));
  }
  out.line(1, "{} in a turn: at most {}; {}", part, duration_text(times.longest), all);
}

void write_head(text_writer& out, const runtime_report& r) {
  out.line(0, "runtime \"{}\" of pid {} on {}, at {}, incarnation {}, up for {}",
           r.thread_name, r.identity.pid, r.identity.host.view(), r.address,
           r.incarnation, duration_text(r.uptime));
  const auto reactor = [&](std::string_view name, const reactor_report& x,
                           std::string_view unknown) {
    if (x.silent_for) {
      out.line(
          0,
          "{}: {}, {} turns; it has not answered for {}: it is busy, or no thread turns "
          "it; {} unknown",
          name, x.engine, x.turns, duration_text(*x.silent_for), unknown);
    } else {
      out.line(0, "{}: {}, {} turns", name, x.engine, x.turns);
    }
    if (x.only_cpu) {
      out.line(1, "bound to CPU {}: {}", *x.only_cpu,
               x.spin_is_held              ? "does not spin, a peer is bound to it too"
               : x.spin > duration::zero() ? "spins for " + duration_text(x.spin)
                                           : "does not spin");
    }
    write_times(out, "the library", x.times.library);
    write_times(out, "tasks", x.times.tasks);
  };
  reactor("reactor", r.user, "lanes and counters are");
  reactor("service", r.service, "links and departures are");
}

const char* sharing_text(const link_report& l) noexcept {
  if (!l.is_local) return "";
  return l.is_readable ? "with shared memory, "
                       : "with shared memory (its own may not be read), ";
}

void write_link(text_writer& out, const link_report& l) {
  out.line(
      1,
      "{} (pid {}) at {}, incarnation {}: {}, {}{}last heard {} ago; its reactor has "
      "made {} "
      "turns, the last seen {} ago",
      l.identity.host.view(), l.identity.pid, l.address, l.incarnation,
      l.is_up ? "up" : "over", l.is_held ? "" : "unused, ", sharing_text(l),
      duration_text(l.silence), l.peer_turns, duration_text(l.without_turn));
}

void write_member(text_writer& out, const member_report& m) {
  const std::string who = fmt::format("rank {}: {} (pid {}) at {}", m.rank,
                                      m.identity.host.view(), m.identity.pid, m.address);
  if (m.is_self) {
    out.line(2, "{}, this process", who);
  } else {
    const std::string by = m.transport.empty() ? "" : " over " + m.transport;
    out.line(2, "{}{}, last heard {} ago{}{}", who, by, duration_text(m.silence),
             m.is_suspect ? ", suspect" : "",
             m.has_left.value_or(false) ? ", has left" : "");
  }
}

void write_collective(text_writer& out, const collective_status& c) {
  const std::string what =
      fmt::format("{} {} for {}", name_of(c.kind), c.number, duration_text(c.waited));
  if (!c.is_known) return out.line(2, "in {}", what);
  if (c.absent.empty()) return out.line(2, "in {}: all members have entered it", what);
  out.line(2, "in {}: waits for {} {} to enter it", what,
           c.absent.size() == 1 ? "rank" : "ranks", fmt::join(c.absent, ", "));
}

void write_device(text_writer& out, const device_status& d) {
  out.line(2,
           "on device {}: {}, {}; {} of {} multiprocessors, {} of them given to worlds",
           d.device, d.is_ready ? "ready" : "not ready",
           d.is_told_by_words ? "told by words" : "told by events", d.occupied,
           d.multiprocessors, d.given);
  out.line(3,
           "{} operations being checked, {} queued, {} handed over and {} of them "
           "launched; {} tickets awaited",
           d.being_checked, d.queued, d.handed_over, d.launched, d.awaited);
  if (d.has_places) {
    out.line(3, "{} places held in the order that it shares with other worlds", d.places);
  }
  if (d.stuck > 0) out.line(3, "{} communicators of the device are stuck", d.stuck);
  if (d.roots > 0)
    out.line(3, "{} creations on the device wait for members that never come", d.roots);
}

void write_transfers(text_writer& out, const transfer_report& t) {
  if (t.transport.empty()) return;
  const transfer_counters& c = t.counters;
  out.line(2, "by {}: {} messages ({} bytes) sent, {} messages ({} bytes) received",
           t.transport, c.messages_sent, c.bytes_sent, c.messages_received,
           c.bytes_received);
  if (t.device) write_device(out, *t.device);
  if (t.collective) write_collective(out, *t.collective);
  for (const lane_status& l : t.lanes) {
    out.line(
        2,
        "lane {} with rank {}: {} sent, {} received; {} sends and {} receives wait; {} "
        "messages ({} bytes) unexpected",
        l.on.number(), l.peer, l.sent, l.received, l.waiting_sends, l.waiting_receives,
        l.unexpected_messages, l.unexpected_bytes);
    if (l.waits_for != send_obstacle::none) {
      out.line(3, "its first send waits for {}", name_of(l.waits_for));
    }
    if (l.window_held > 0 && l.unexpected_messages > 0) {
      out.line(3, "holds {} bytes of the window, for {}: no receive takes what has come",
               l.window_held, duration_text(l.held_for));
    }
    if (l.window_at_peer > 0) {
      out.line(3, "holds {} bytes of the peer's window", l.window_at_peer);
    }
  }
}

void write_world(text_writer& out, const world_report& w) {
  std::string name = w.name.str();
  if (w.epoch != 0) name += fmt::format("@{}", w.epoch);
  const world_history& h = w.history;
  out.line(
      1, "{}: {}, rank {} of {}{}{}", name, w.state, w.rank, w.size,
      h.up_for == duration::zero() ? "" : ", formed " + duration_text(h.up_for) + " ago",
      h.times_suspect == 0 ? "" : fmt::format(", {} suspicions", h.times_suspect));
  for (const error_count& e : h.errors) {
    out.line(2, "{} operations ended with {}", e.operations, name_of(e.cause));
  }
  if (w.first_cause) out.line(2, "{}", w.first_cause.text());
  for (const member_report& m : w.members) write_member(out, m);
  if (w.transfers) write_transfers(out, *w.transfers);
  for (const operation_report& o : w.pending) {
    const std::string obstacle = o.waits_for.empty() ? "" : ", waits for " + o.waits_for;
    out.line(2, "pending for {}: {}, {} of {} bytes, {}{}, at {}:{}",
             duration_text(o.age), what(o), o.bytes_moved, o.bytes_wanted,
             o.begun ? "begun" : "not begun", obstacle, file_of(o.file), o.line);
  }
}

void write_tasks(text_writer& out, const runtime_report& r) {
  out.line(0, "tasks that were started: {}", r.tasks.size());
  for (const task_report& t : r.tasks) {
    out.line(1, "running for {}, started at {}:{}", duration_text(t.age), file_of(t.file),
             t.line);
  }
  if (r.failed_tasks.empty()) return;
  out.line(0, "tasks that ended by an exception, oldest first: {}",
           r.failed_tasks.size());
  for (const task_report& t : r.failed_tasks) {
    out.line(1, "{} ago, started at {}:{}: {}", duration_text(t.age), file_of(t.file),
             t.line, t.error);
  }
}

void write_recent(text_writer& out, const operation_report& o) {
  std::string how = fmt::format("{} bytes", o.bytes_moved);
  if (o.failed_with != cause::none)
    how = fmt::format("failed: {}", name_of(o.failed_with));
  out.line(1, "{}@{} {}: {} in {}, {} ago, at {}:{}", o.world.view(), o.epoch, what(o),
           how, duration_text(o.age), duration_text(o.ended_ago), file_of(o.file),
           o.line);
}

/// Writes nothing for a runtime to which none of this has happened.
void write_serving(text_writer& out, const serving_report& s) {
  if (s.bodies_failed != 0)
    out.line(0, "bodies that ended by an exception: {}", s.bodies_failed);
  if (s.calls_asked_twice + s.late_answers + s.calls_given_back == 0) return;
  out.line(
      0,
      "calls: {} asked twice, {} of them answered by another worker, {} late answers "
      "dropped, {} given back by workers that drain",
      s.calls_asked_twice, s.answered_by_another, s.late_answers, s.calls_given_back);
}

}  // namespace

std::string text_of(const runtime_report& r) {
  text_writer out;
  write_head(out, r);
  write_tasks(out, r);
  if (r.links) {
    out.line(0, "links: {}", r.links->size());
    for (const link_report& l : *r.links) write_link(out, l);
  }
  write_serving(out, r.serving);
  out.line(0, "worlds: {}", r.worlds.size());
  for (const world_report& w : r.worlds) write_world(out, w);
  out.line(0, "worlds that ended lately, oldest first: {}", r.ended_worlds.size());
  for (const ended_world_report& w : r.ended_worlds) {
    out.line(1, "{} ago: {}", duration_text(w.ended_ago), w.reason);
  }
  out.line(0, "last operations that ended, oldest first: {}", r.recent.size());
  for (const operation_report& o : r.recent) write_recent(out, o);
  return out.take();
}

}  // namespace manyworlds::inline v0::detail
