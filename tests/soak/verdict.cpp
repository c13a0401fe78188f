#include "soak/verdict.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

namespace manyworlds_tests::soak {

namespace {

// Processes share few CPUs, and each may be kept from its own for a while.
constexpr tolerance allowed{.at_once = 2s, .early = 200ms, .slack = 5s};
// A silent peer breaks its worlds after 5 s.
constexpr mw::duration longest_notice = 10s;
constexpr mw::duration longest_gap = 5s;

}  // namespace

verdict::verdict(const plan& p, const course& c)
    : plan_(p), course_(c), story_(faults_, allowed), has_ended_(c.processes.size()) {
  for (std::size_t i = 0; i < c.processes.size(); ++i) {
    by_pid_[c.processes[i].pid] = i;
    faults_.processes.push_back({name_of(i), {}, false, c.begin});
  }
  for (const planned_world& w : p.worlds) {
    if (w.is_undisturbed) last_message_[w.talk.name] = {};
  }
  for (const std::string& what : c.complaints) story_.complain(what);
}

std::string verdict::name_of(std::size_t process) const {
  const noted_process& p = course_.processes[process];
  return fmt::format("slot {} (pid {})", p.slot, p.pid);
}

std::size_t verdict::process_of(pid_t pid) const { return by_pid_.at(pid); }

// --- what is told ----------------------------------------------------------------------

void verdict::formed(world_entry entry) {
  views_.emplace_back(entry.process, entry.instance);
  ++figures_.views;
  if (entry.rank == 0) ++figures_.epochs;
  const auto planned =
      std::find_if(plan_.worlds.begin(), plan_.worlds.end(),
                   [&](const planned_world& w) { return w.talk.name == entry.name; });
  entry.may_be_unknown = planned->how == repair::shrunk;
  story_.formed(std::move(entry));
}

void verdict::broke(std::size_t process, std::uint64_t instance, const mw::failure& f,
                    mw::time_point when) {
  check_cause(process, f);
  story_.broke(process, instance, f, when);
}

// No member lies here, and there is enough of everything.
void verdict::check_cause(std::size_t process, const mw::failure& f) {
  switch (f.cause) {
    case mw::cause::protocol_error:
    case mw::cause::mismatch:
    case mw::cause::out_of_resources:
    case mw::cause::invalid_argument:
    case mw::cause::unsupported:
      complain(fmt::format("law 11: at {}: \"{}\"", name_of(process), f.text()));
      break;
    default:
      break;
  }
}

void verdict::failed(std::size_t op, const mw::failure& f, mw::time_point when) {
  check_cause(process_of_operation_[op], f);
  ++figures_.errors[std::string(mw::name_of(f.cause))];
  story_.failed(op, f, when);
}

void verdict::received(const message_key& key, std::uint64_t number, std::size_t bytes,
                       mw::time_point when) {
  if (const auto last = last_message_.find(key.world); last != last_message_.end()) {
    const bool is_first = last->second == mw::time_point();
    if (!is_first) {
      figures_.longest_gap = std::max(figures_.longest_gap, when - last->second);
    }
    last->second = when;
  }
  story_.received(key, number, bytes, when);
}

void verdict::failing(const std::string& world, mw::time_point when) {
  ++figures_.fails;
  faults_.begin({"failed by its user", {}, {}, world, when, when});
}

void verdict::tell(const noted_event& e) {
  process_life& life = faults_.processes[e.process];
  switch (e.what) {
    case event::killed:
      ++figures_.kills;
      faults_.begin({fault_log::killed, e.process, {}, {}, e.when, {}});
      life.killed = e.when;
      break;
    case event::stopped:
      ++figures_.stops;
      open_stops_[e.process] = faults_.begin({"stopped", e.process, {}, {}, e.when, {}});
      life.stopped = true;
      break;
    case event::resumed:
      faults_.end(open_stops_.at(e.process), e.when);
      life.stopped = false;
      life.resumed = e.when;
      break;
  }
}

// --- all of it -------------------------------------------------------------------------

void verdict::judge() {
  tell_all();
  story_.check_everything();
  check_gaps();
  check_notices();
  check_last_epochs();
  for (std::size_t i = 0; i < has_ended_.size(); ++i) {
    if (has_ended_[i] || faults_.processes[i].killed) continue;
    complain("law 1: the records of " + name_of(i) + " have no end");
  }
  figures_.operations = story_.operations();
  figures_.messages = story_.messages();
  figures_.bytes = story_.bytes();
}

void verdict::tell_all() {
  std::deque<record_reader> all;
  for (std::size_t i = 0; i < course_.processes.size(); ++i) {
    all.emplace_back(course_.processes[i].records, i);
  }
  auto next_event = course_.events.begin();
  mw::time_point looked = course_.begin;
  for (;;) {
    record_reader* first = nullptr;
    for (record_reader& r : all) {
      if (!r.is_at_end() && (!first || r.next() < first->next())) first = &r;
    }
    const bool has_event = next_event != course_.events.end();
    if (!first && !has_event) break;
    if (has_event && (!first || next_event->when <= first->next())) {
      tell(*next_event++);
      continue;
    }
    if (first->next() - looked >= 500ms) {
      looked = first->next();
      story_.check_waiting(looked);
    }
    first->tell_next(*this, *this);
  }
  // Not before: between the note and the kill a process may still have begun something.
  for (std::size_t i = 0; i < faults_.processes.size(); ++i) {
    if (faults_.processes[i].killed) story_.lost(i);
  }
}

void verdict::check_gaps() {
  const mw::time_point quiet = course_.begin + plan_.quiet;
  for (const auto& [world, last] : last_message_) {
    if (last == mw::time_point()) {
      complain("law 2: nothing came in " + world + ", which was not disturbed");
    } else {
      figures_.longest_gap = std::max(figures_.longest_gap, quiet - last);
    }
  }
  if (figures_.longest_gap <= longest_gap) return;
  complain(fmt::format("law 2: nothing came for {} ms in an undisturbed world",
                       figures_.longest_gap / 1ms));
}

bool verdict::was_away(std::size_t process, mw::time_point from,
                       mw::time_point to) const {
  const auto& killed = faults_.processes[process].killed;
  if (killed && *killed <= to) return true;
  return std::any_of(faults_.all().begin(), faults_.all().end(), [&](const fault& f) {
    return f.process == process && f.begin <= to && (!f.end || *f.end >= from);
  });
}

void verdict::check_notices() {
  for (auto e = course_.events.begin(); e != course_.events.end(); ++e) {
    if (e->what == event::killed) check_notice(*e, e->when + longest_notice);
    if (e->what != event::stopped) continue;
    const auto resumed =
        std::find_if(e, course_.events.end(), [&](const noted_event& later) {
          return later.what != event::stopped && later.process == e->process;
        });
    // One that was stopped for not much longer than the limit may be back in time.
    const bool is_long =
        resumed != course_.events.end() && resumed->when - e->when > 6500ms;
    if (is_long) check_notice(*e, resumed->when + longest_notice);
  }
}

void verdict::check_notice(const noted_event& e, mw::time_point limit) {
  for (const auto& [process, instance] : views_) {
    const world_entry& w = *story_.find(process, instance);
    const bool concerns =
        process != e.process &&
        std::find(w.members.begin(), w.members.end(), e.process) != w.members.end();
    const bool was_there = w.formed < e.when && (!w.left || *w.left > limit) &&
                           (!w.broken || *w.broken > e.when);
    if (!concerns || !was_there) continue;
    if (w.broken && e.what == event::killed && !was_away(process, e.when, *w.broken)) {
      figures_.notices.push_back(*w.broken - e.when);
    }
    if ((w.broken && *w.broken <= limit) || was_away(process, e.when, limit)) continue;
    complain(fmt::format("laws 8 and 9: {} was hurt, and {}@{} at {} has not noticed",
                         name_of(e.process), w.name, w.epoch, name_of(process)));
  }
}

void verdict::check_last_epochs() {
  const mw::time_point quiet = course_.begin + plan_.quiet;
  for (const planned_world& p : plan_.worlds) {
    std::size_t ends = 0;
    for (const auto& [process, instance] : views_) {
      const world_entry& w = *story_.find(process, instance);
      const bool is_last = w.name == p.talk.name && w.left && *w.left >= quiet &&
                           !w.broken && w.members.size() == p.talk.members.size();
      if (is_last) ++ends;
    }
    if (ends == p.talk.members.size()) continue;
    complain(fmt::format("law 9: {} of {} members of {} were in it at the end", ends,
                         p.talk.members.size(), p.talk.name));
  }
}

}  // namespace manyworlds_tests::soak
