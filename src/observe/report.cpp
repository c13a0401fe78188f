#include "observe/report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "duration_text.hpp"
#include "observe/json_writer.hpp"

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

double ms(duration d) { return std::chrono::duration<double, std::milli>(d).count(); }

/// Writes what there is by `write`, or null if there is nothing.
template <class T, class Write>
void write_or_null(json_writer& out, std::string_view key, const T& maybe, Write write) {
  out.key(key);
  if (maybe) {
    write(*maybe);
  } else {
    out.null();
  }
}

void write_rank(json_writer& out, std::string_view key, rank_t rank) {
  const auto known = rank == no_rank ? std::nullopt : std::optional(rank);
  write_or_null(out, key, known, [&](rank_t r) { out.value(r); });
}

std::string_view file_of(std::string_view path) {
  const auto slash = path.rfind('/');
  return slash == path.npos ? path : path.substr(slash + 1);
}

// --- reactors

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

void write_times(json_writer& out, std::string_view key, const time_histogram& times) {
  out.key(key).object();
  out.field("turns", times.count()).field("longest_ms", ms(times.longest));
  out.field("p99_ms", ms(times.quantile(0.99))).key("histogram").array();
  for (std::size_t b = 0; b < times.buckets; ++b) {
    if (times.counts[b] == 0) continue;
    out.object().field("from_ms", ms(times.begin_of(b)));
    out.field("turns", times.counts[b]).end_object();
  }
  out.end_array().end_object();
}

void write_reactor(text_writer& out, std::string_view name, const reactor_report& r,
                   std::string_view unknown) {
  if (r.silent_for) {
    out.line(
        0,
        "{}: {}, {} turns; it has not answered for {}: it is busy, or no thread turns "
        "it; {} unknown",
        name, r.engine, r.turns, duration_text(*r.silent_for), unknown);
  } else {
    out.line(0, "{}: {}, {} turns", name, r.engine, r.turns);
  }
  if (r.only_cpu) {
    out.line(1, "bound to CPU {}: {}", *r.only_cpu,
             r.spin_is_held              ? "does not spin, a peer is bound to it too"
             : r.spin > duration::zero() ? "spins for " + duration_text(r.spin)
                                         : "does not spin");
  }
  write_times(out, "the library", r.times.library);
  write_times(out, "tasks", r.times.tasks);
}

void write_reactor(json_writer& out, std::string_view key, const reactor_report& r) {
  out.key(key).object();
  out.field("engine", r.engine).field("turns", r.turns).field("answers", !r.silent_for);
  if (r.silent_for) out.field("silent_ms", ms(*r.silent_for));
  out.field("spin_us", std::chrono::duration<double, std::micro>(r.spin).count());
  if (r.only_cpu) out.field("only_cpu", *r.only_cpu);
  if (r.spin_is_held) out.field("shares_only_cpu", true);
  write_times(out, "library", r.times.library);
  write_times(out, "tasks", r.times.tasks);
  out.end_object();
}

// --- tasks

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

void write_tasks(json_writer& out, std::string_view key,
                 const std::vector<task_report>& tasks) {
  out.key(key).array();
  for (const task_report& t : tasks) {
    out.object().field("file", t.file).field("line", t.line);
    out.field("age_ms", ms(t.age));
    if (!t.error.empty()) out.field("error", t.error);
    out.end_object();
  }
  out.end_array();
}

// --- links

void write_identity(json_writer& out, const process_identity& who) {
  out.field("pid", who.pid).field("host", who.host.view());
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

void write_link(json_writer& out, const link_report& l) {
  out.object();
  write_identity(out, l.identity);
  out.field("address", l.address).field("incarnation", l.incarnation);
  out.field("up", l.is_up)
      .field("used", l.is_held)
      .field("shared_memory", l.is_local)
      .field("memory_is_read", l.is_readable)
      .field("silence_ms", ms(l.silence));
  out.field("peer_turns", l.peer_turns).field("without_turn_ms", ms(l.without_turn));
  out.end_object();
}

// --- operations

std::string what(const operation_report& o) {
  std::string text(name_of(o.kind));
  if (!is_message(o.kind) && o.kind != operation_kind::arrival) return text;
  text += o.kind == operation_kind::send ? " to " : " from ";
  const char* const many = o.kind == operation_kind::send ? "several ranks" : "any";
  text += o.peer == no_rank ? std::string(many) : fmt::format("rank {}", o.peer);
  return text + fmt::format(" on lane {}", o.lane);
}

void write_operation(json_writer& out, const operation_report& o) {
  out.field("kind", name_of(o.kind));
  write_rank(out, "peer", o.peer);
  out.field("lane", o.lane).field("bytes_moved", o.bytes_moved).field("begun", o.begun);
  out.field("file", o.file).field("line", o.line);
}

void write_pending(text_writer& out, const operation_report& o) {
  const std::string obstacle = o.waits_for.empty() ? "" : ", waits for " + o.waits_for;
  out.line(2, "pending for {}: {}, {} of {} bytes, {}{}, at {}:{}", duration_text(o.age),
           what(o), o.bytes_moved, o.bytes_wanted, o.begun ? "begun" : "not begun",
           obstacle, file_of(o.file), o.line);
}

void write_pending(json_writer& out, const operation_report& o) {
  out.object();
  write_operation(out, o);
  out.field("waits_for", o.waits_for);
  out.field("bytes_wanted", o.bytes_wanted).field("age_ms", ms(o.age)).end_object();
}

void write_recent(text_writer& out, const operation_report& o) {
  std::string how = fmt::format("{} bytes", o.bytes_moved);
  if (o.failed_with != cause::none)
    how = fmt::format("failed: {}", name_of(o.failed_with));
  out.line(1, "{}@{} {}: {} in {}, {} ago, at {}:{}", o.world.view(), o.epoch, what(o),
           how, duration_text(o.age), duration_text(o.ended_ago), file_of(o.file),
           o.line);
}

void write_recent(json_writer& out, const operation_report& o) {
  out.object().field("world", o.world.view()).field("epoch", o.epoch);
  write_operation(out, o);
  out.field("took_ms", ms(o.age)).field("ended_ms_ago", ms(o.ended_ago));
  out.field("failed_with", name_of(o.failed_with)).end_object();
}

// --- what a backend knows of a world

void write_collective(text_writer& out, const collective_status& c) {
  const std::string what =
      fmt::format("{} {} for {}", name_of(c.kind), c.number, duration_text(c.waited));
  if (!c.is_known) return out.line(2, "in {}", what);
  if (c.absent.empty()) return out.line(2, "in {}: all members have entered it", what);
  out.line(2, "in {}: waits for {} {} to enter it", what,
           c.absent.size() == 1 ? "rank" : "ranks", fmt::join(c.absent, ", "));
}

void write_collective(json_writer& out, const collective_status& c) {
  out.object().field("kind", name_of(c.kind)).field("number", c.number);
  out.field("waited_ms", ms(c.waited)).key("waits_for");
  if (!c.is_known) {
    out.null();
  } else {
    out.array();
    for (const rank_t rank : c.absent) out.value(rank);
    out.end_array();
  }
  out.end_object();
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

void write_device(json_writer& out, const device_status& d) {
  out.object().field("device", d.device).field("nccl_version", d.nccl_version);
  out.field("ready", d.is_ready).field("told_by_words", d.is_told_by_words);
  out.field("occupied", d.occupied).field("given", d.given);
  out.field("multiprocessors", d.multiprocessors);
  out.field("being_checked", d.being_checked).field("queued", d.queued);
  out.field("handed_over", d.handed_over).field("launched", d.launched);
  out.field("has_places", d.has_places).field("places", d.places);
  out.field("awaited", d.awaited).field("stuck", d.stuck).field("roots", d.roots);
  out.end_object();
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

void write_transfers(json_writer& out, const transfer_report& t) {
  out.object().field("transport", t.transport);
  out.field("messages_sent", t.counters.messages_sent);
  out.field("messages_received", t.counters.messages_received);
  out.field("bytes_sent", t.counters.bytes_sent);
  out.field("bytes_received", t.counters.bytes_received);
  out.key("lanes").array();
  for (const lane_status& l : t.lanes) {
    out.object().field("peer", l.peer).field("lane", l.on.number());
    out.field("sent", l.sent).field("received", l.received);
    out.field("waiting_sends", l.waiting_sends)
        .field("waiting_receives", l.waiting_receives);
    out.field("unexpected_messages", l.unexpected_messages);
    out.field("unexpected_bytes", l.unexpected_bytes);
    out.field("waits_for", name_of(l.waits_for)).field("window_held", l.window_held);
    out.field("held_ms", ms(l.held_for)).field("window_at_peer", l.window_at_peer);
    out.end_object();
  }
  out.end_array();
  write_or_null(out, "device", t.device,
                [&](const device_status& d) { write_device(out, d); });
  write_or_null(out, "collective", t.collective,
                [&](const collective_status& c) { write_collective(out, c); });
  out.end_object();
}

// --- worlds

void write_failure(json_writer& out, const failure& f) {
  out.object();
  out.field("cause", name_of(f.cause));
  write_rank(out, "rank", f.rank);
  write_identity(out, f.peer);
  out.field("noticed_after_ms", ms(f.noticed_after)).field("detail", f.detail);
  out.field("text", f.text()).end_object();
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

void write_member(json_writer& out, const member_report& m) {
  out.object().field("rank", m.rank);
  write_identity(out, m.identity);
  out.field("address", m.address).field("self", m.is_self).field("suspect", m.is_suspect);
  if (!m.is_self) out.field("transport", m.transport);
  out.field("silence_ms", ms(m.silence));
  write_or_null(out, "left", m.has_left, [&](bool left) { out.value(left); });
  out.end_object();
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
  for (const operation_report& o : w.pending) write_pending(out, o);
}

void write_world(json_writer& out, const world_report& w) {
  out.object().field("name", w.name.view()).field("epoch", w.epoch);
  out.field("instance", w.instance).field("rank", w.rank).field("size", w.size);
  out.field("state", w.state);
  write_or_null(out, "first_cause", w.first_cause ? &w.first_cause : nullptr,
                [&](const failure& f) { write_failure(out, f); });
  out.field("up_ms", ms(w.history.up_for))
      .field("times_suspect", w.history.times_suspect);
  out.key("errors").object();
  for (const error_count& e : w.history.errors) out.field(name_of(e.cause), e.operations);
  out.end_object().key("members").array();
  for (const member_report& m : w.members) write_member(out, m);
  out.end_array().key("pending").array();
  for (const operation_report& o : w.pending) write_pending(out, o);
  out.end_array();
  write_or_null(out, "transfers", w.transfers,
                [&](const transfer_report& t) { write_transfers(out, t); });
  out.end_object();
}

// --- serving

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

void write_serving(json_writer& out, const serving_report& s) {
  out.key("serving").object();
  out.field("bodies_failed", s.bodies_failed);
  out.field("calls_asked_twice", s.calls_asked_twice);
  out.field("answered_by_another", s.answered_by_another);
  out.field("late_answers", s.late_answers);
  out.field("calls_given_back", s.calls_given_back).end_object();
}

// --- jobs

void write_job(text_writer& out, const job_report& j) {
  out.line(0, "job {}: round {}, node {} of {}, {} workers in all, {} restarts{}{}",
           j.run, j.round, j.node, j.nodes, j.size, j.restarts,
           j.ending.empty() ? "" : "; its workers are ended: ", j.ending);
  for (const job_worker_report& w : j.workers)
    out.line(1, "rank {}: pid {}, started {} times, {}", w.rank, w.pid, w.starts,
             w.state);
  for (const std::string& each : j.verdicts) out.line(1, "verdict: {}", each);
}

void write_job(json_writer& out, const job_report& j) {
  out.object().field("run", std::string_view(j.run)).field("round", j.round);
  out.field("node", j.node).field("nodes", j.nodes).field("size", j.size);
  out.field("restarts", j.restarts).field("ending", std::string_view(j.ending));
  out.key("workers").array();
  for (const job_worker_report& w : j.workers) {
    out.object().field("rank", w.rank).field("pid", w.pid).field("starts", w.starts);
    out.field("state", std::string_view(w.state)).end_object();
  }
  out.end_array().key("verdicts").array();
  for (const std::string& each : j.verdicts) out.value(std::string_view(each));
  out.end_array().end_object();
}

// --- sessions

void write_session(text_writer& out, const session_report& s) {
  out.line(0, "session {}: {} workers, {} calls open", s.name, s.workers.size(),
           s.open_calls);
  if (const std::string doing = s.doing(); !doing.empty()) out.line(1, "{}", doing);
  for (const session_worker_report& w : s.workers) {
    const std::string where = w.pid == 0 ? "a thread" : fmt::format("pid {}", w.pid);
    out.line(1, "worker {} ({}, incarnation {}): {}; was sent {} commands, and {} wait",
             w.id, where, w.incarnation, w.state, w.sent, w.waiting);
  }
}

void write_session(json_writer& out, const session_report& s) {
  out.object().field("name", s.name).field("open_calls", s.open_calls);
  out.key("workers").array();
  for (const session_worker_report& w : s.workers) {
    out.object().field("id", w.id).field("pid", w.pid);
    out.field("incarnation", w.incarnation).field("state", w.state);
    out.field("waiting", w.waiting).field("sent", w.sent);
    out.field("call", w.call).field("function", w.function);
    write_or_null(out, "in_call_ms", w.in_call, [&](duration d) { out.value(ms(d)); });
    out.field("doing", w.doing);
    write_or_null(out, "silent_ms", w.silent_for, [&](duration d) { out.value(ms(d)); });
    out.end_object();
  }
  out.end_array().end_object();
}

}  // namespace

/// Workers that do the same stand together, with the longest of their times. Those that
/// wait for nothing come first: the others may wait for them.
std::string session_report::doing() const {
  struct group {
    std::string ids;
    bool is_one = true;
    duration in_call{0};
    duration silent_for{0};
  };
  using what = std::tuple<std::uint64_t, std::string, bool, bool>;
  std::map<what, group> groups;
  std::map<std::uint64_t, std::string_view> functions;
  for (const session_worker_report& w : workers) {
    if (w.call == 0) continue;
    functions[w.call] = w.function;
    group& g = groups[{w.call, w.doing, w.in_call.has_value(), w.silent_for.has_value()}];
    g.is_one = g.ids.empty();
    g.ids += fmt::format("{}{}", g.is_one ? "" : ", ", w.id);
    g.in_call = std::max(g.in_call, w.in_call.value_or(duration::zero()));
    g.silent_for = std::max(g.silent_for, w.silent_for.value_or(duration::zero()));
  }
  std::string text;
  for (const auto& [what, g] : groups) {
    const auto& [call, waits, is_in, is_silent] = what;
    text += fmt::format("{}worker{} {} {} {} (call {})", text.empty() ? "" : "; ",
                        g.is_one ? "" : "s", g.ids, is_in ? "in" : "to do",
                        functions[call], call);
    if (is_in) text += " for " + duration_text(g.in_call);
    if (!waits.empty()) text += ": " + waits;
    if (is_silent) text += ", silent for " + duration_text(g.silent_for);
  }
  return text;
}

std::string text_of(const runtime_report& r) {
  text_writer out;
  out.line(0, "runtime \"{}\" of pid {} on {}, at {}, incarnation {}, up for {}",
           r.thread_name, r.identity.pid, r.identity.host.view(), r.address,
           r.incarnation, duration_text(r.uptime));
  write_reactor(out, "reactor", r.user, "lanes, counters and sessions are");
  write_reactor(out, "service", r.service, "links and departures are");
  write_tasks(out, r);
  if (r.links) {
    out.line(0, "links: {}", r.links->size());
    for (const link_report& l : *r.links) write_link(out, l);
  }
  write_serving(out, r.serving);
  for (const job_report& j : r.jobs) write_job(out, j);
  if (r.sessions) {
    for (const session_report& s : *r.sessions) write_session(out, s);
  }
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

std::string json_of(const runtime_report& r) {
  json_writer out;
  out.object();
  write_identity(out, r.identity);
  out.field("name", r.thread_name).field("address", r.address);
  out.field("incarnation", r.incarnation).field("uptime_ms", ms(r.uptime));
  write_reactor(out, "reactor", r.user);
  write_reactor(out, "service", r.service);
  write_tasks(out, "tasks", r.tasks);
  write_tasks(out, "failed_tasks", r.failed_tasks);
  write_or_null(out, "links", r.links, [&](const std::vector<link_report>& links) {
    out.array();
    for (const link_report& l : links) write_link(out, l);
    out.end_array();
  });
  write_serving(out, r.serving);
  out.key("jobs").array();
  for (const job_report& j : r.jobs) write_job(out, j);
  out.end_array();
  write_or_null(out, "sessions", r.sessions,
                [&](const std::vector<session_report>& sessions) {
                  out.array();
                  for (const session_report& s : sessions) write_session(out, s);
                  out.end_array();
                });
  out.key("worlds").array();
  for (const world_report& w : r.worlds) write_world(out, w);
  out.end_array().key("ended_worlds").array();
  for (const ended_world_report& w : r.ended_worlds) {
    out.object()
        .field("name", w.name.view())
        .field("epoch", w.epoch)
        .field("reason", w.reason);
    out.field("ended_ms_ago", ms(w.ended_ago)).end_object();
  }
  out.end_array().key("recent").array();
  for (const operation_report& o : r.recent) write_recent(out, o);
  out.end_array().end_object();
  return out.take() + "\n";
}

}  // namespace manyworlds::inline v0::detail
