#include "observe/json_writer.hpp"
#include "observe/report.hpp"

namespace manyworlds::inline v0::detail {

namespace {

double ms(duration d) { return std::chrono::duration<double, std::milli>(d).count(); }

/// Writes the member's number, or null where there is none.
void write_rank(json_writer& out, std::string_view key, rank_t rank) {
  out.key(key);
  if (rank == no_rank) {
    out.null();
  } else {
    out.value(rank);
  }
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

void write_identity(json_writer& out, const process_identity& who) {
  out.field("pid", who.pid).field("host", who.host.view());
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

void write_failure(json_writer& out, const failure& f) {
  out.object();
  out.field("cause", name_of(f.cause));
  write_rank(out, "rank", f.rank);
  write_identity(out, f.peer);
  out.field("noticed_after_ms", ms(f.noticed_after)).field("detail", f.detail);
  out.field("text", f.text()).end_object();
}

void write_member(json_writer& out, const member_report& m) {
  out.object().field("rank", m.rank);
  write_identity(out, m.identity);
  out.field("address", m.address).field("self", m.is_self).field("suspect", m.is_suspect);
  if (!m.is_self) out.field("transport", m.transport);
  out.field("silence_ms", ms(m.silence)).key("left");
  if (m.has_left) {
    out.value(*m.has_left);
  } else {
    out.null();
  }
  out.end_object();
}

void write_operation(json_writer& out, const operation_report& o) {
  out.field("kind", name_of(o.kind));
  write_rank(out, "peer", o.peer);
  out.field("lane", o.lane).field("bytes_moved", o.bytes_moved).field("begun", o.begun);
  out.field("file", o.file).field("line", o.line);
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
  out.end_array().key("device");
  if (t.device) {
    write_device(out, *t.device);
  } else {
    out.null();
  }
  out.key("collective");
  if (t.collective) {
    write_collective(out, *t.collective);
  } else {
    out.null();
  }
  out.end_object();
}

void write_world(json_writer& out, const world_report& w) {
  out.object().field("name", w.name.view()).field("epoch", w.epoch);
  out.field("instance", w.instance).field("rank", w.rank).field("size", w.size);
  out.field("state", w.state).key("first_cause");
  if (w.first_cause) {
    write_failure(out, w.first_cause);
  } else {
    out.null();
  }
  out.field("up_ms", ms(w.history.up_for))
      .field("times_suspect", w.history.times_suspect);
  out.key("errors").object();
  for (const error_count& e : w.history.errors) out.field(name_of(e.cause), e.operations);
  out.end_object().key("members").array();
  for (const member_report& m : w.members) write_member(out, m);
  out.end_array().key("pending").array();
  for (const operation_report& o : w.pending) {
    out.object();
    write_operation(out, o);
    out.field("waits_for", o.waits_for);
    out.field("bytes_wanted", o.bytes_wanted).field("age_ms", ms(o.age)).end_object();
  }
  out.end_array().key("transfers");
  if (w.transfers) {
    write_transfers(out, *w.transfers);
  } else {
    out.null();
  }
  out.end_object();
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

void write_recent(json_writer& out, const operation_report& o) {
  out.object().field("world", o.world.view()).field("epoch", o.epoch);
  write_operation(out, o);
  out.field("took_ms", ms(o.age)).field("ended_ms_ago", ms(o.ended_ago));
  out.field("failed_with", name_of(o.failed_with)).end_object();
}

}  // namespace

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
  out.key("links");
  if (r.links) {
    out.array();
    for (const link_report& l : *r.links) write_link(out, l);
    out.end_array();
  } else {
    out.null();
  }
  out.key("serving")
      .object()
      .field("bodies_failed", r.serving.bodies_failed)
      .field("calls_asked_twice", r.serving.calls_asked_twice)
      .field("answered_by_another", r.serving.answered_by_another)
      .field("late_answers", r.serving.late_answers)
      .field("calls_given_back", r.serving.calls_given_back)
      .end_object();
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
