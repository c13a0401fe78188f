// What the history is asked when all is over: messages and barriers, both sides of them.
#include <fmt/format.h>

#include <algorithm>

#include "simulation/history.hpp"

namespace manyworlds_tests {

namespace {
std::string name_of(const message_key& k) {
  return fmt::format("{}@{} from rank {} to {} on lane {}", k.world, k.epoch, k.source,
                     k.target, k.lane);
}
}  // namespace

void history::received(const message_key& key, std::uint64_t number, std::size_t bytes,
                       mw::time_point when) {
  ++received_count_;
  received_bytes_ += bytes;
  auto& all = receipts_[key];
  if (!all.empty() && all.back().number >= number) {
    complain(fmt::format("law 5: {}: {} came after {}", name_of(key), number,
                         all.back().number));
  }
  all.push_back({number, when});
}

void history::check_everything() {
  check_deliveries();
  check_barriers();
  check_farewells();
  check_root_causes();
  for (const std::size_t op : waiting_) complain("law 1: never ended: " + text(ops_[op]));
}

void history::check_deliveries() {
  for (const auto& [key, arrivals] : receipts_) {
    const auto sent = sends_.find(key);
    if (sent == sends_.end()) {
      complain("law 6: what came was not sent: " + name_of(key));
      continue;
    }
    std::uint64_t last = 0;
    for (const std::size_t number : sent->second) {
      const op_entry& op = ops_[number];
      const auto at =
          std::find_if(arrivals.begin(), arrivals.end(),
                       [&](const arrival& a) { return a.number == op.number; });
      const bool came = at != arrivals.end();
      last = std::max(last, op.number);
      const bool overtaken = arrivals.back().number > op.number;
      if (!came && op.fate == op_fate::done && overtaken) {
        complain("law 1: accepted and skipped: " + text(op));
      }
      const bool given_up =
          op.fate == op_fate::given_up ||
          (op.fate == op_fate::failed &&
           (op.cause == mw::cause::timed_out || op.cause == mw::cause::cancelled));
      const mw::time_point wanted = op.started + op.limit.value_or(mw::duration());
      if (came && given_up && op.ended - wanted + allowed_.early < settling) {
        complain("law 10: given up, and received all the same: " + text(op));
      }
    }
    if (arrivals.back().number > last) {
      complain("law 6: a message that was not sent: " + name_of(key));
    }
  }
  // Delivered means that a receive of the peer took it.
  for (const auto& [key, all] : sends_) {
    const auto arrivals = receipts_.find(key);
    for (const std::size_t number : all) {
      const op_entry& op = ops_[number];
      if (!op.delivered || op.fate != op_fate::done) continue;
      const world_entry* w = find(op.process, op.instance);
      const process_life& there =
          faults_.processes[w->members[static_cast<std::size_t>(key.target)]];
      const bool came =
          arrivals != receipts_.end() &&
          std::any_of(arrivals->second.begin(), arrivals->second.end(),
                      [&](const arrival& a) { return a.number == op.number; });
      // A process that is killed has no time to write down what it took.
      if (!came && !there.killed) {
        complain("law 1: delivered to no member: " + text(op));
      }
    }
  }
}

std::vector<const world_entry*> history::ends_of(const world_entry& view) const {
  std::vector<const world_entry*> ends;
  for (const auto& [key, w] : worlds_) {
    if (w.name == view.name && w.epoch == view.epoch && w.id == view.id)
      ends.push_back(&w);
  }
  return ends;
}

// A member that leaves in order has delivered what was accepted: here all wait for the
// last word.
void history::check_farewells() {
  for (const auto& [key, all] : sends_) {
    const op_entry& any = ops_[all.front()];
    const world_entry* here = find(any.process, any.instance);
    const auto ends = ends_of(*here);
    const bool orderly = std::all_of(ends.begin(), ends.end(), [this](const auto* w) {
      return w->left && !w->broken && (!faults_.closing || *w->left < *faults_.closing);
    });
    if (!orderly || ends.size() != here->members.size()) continue;
    const auto arrivals = receipts_.find(key);
    for (const std::size_t number : all) {
      const op_entry& op = ops_[number];
      if (op.fate != op_fate::done) continue;
      const bool came =
          arrivals != receipts_.end() &&
          std::any_of(arrivals->second.begin(), arrivals->second.end(),
                      [&](const arrival& a) { return a.number == op.number; });
      if (!came) complain("law 1: accepted, left in order and never came: " + text(op));
    }
  }
}

// With one fault alone, all members give its cause: a root cause is not buried by what
// follows from it.
void history::check_root_causes() {
  for (const auto& [key, view] : views_) {
    for (const world_entry* w : ends_of(view)) {
      if (!w->broken || (faults_.closing && *w->broken >= *faults_.closing)) continue;
      const auto reasons = faults_.concerning(w->name, w->members, *w->broken);
      if (reasons.size() != 1) continue;
      const fault& reason = *reasons.front();
      bool right = true;
      if (!reason.world.empty()) {
        right = w->first_cause.cause == mw::cause::broken_by_user;
      } else if (reason.what == fault_log::killed) {
        right =
            (w->first_cause.cause == mw::cause::peer_died ||
             w->first_cause.cause == mw::cause::replaced) &&
            w->members[static_cast<std::size_t>(w->first_cause.rank)] == *reason.process;
      }
      if (!right) {
        complain(fmt::format(
            "section 9: {} was {}, and {} says \"{}\"",
            reason.process ? faults_.processes[*reason.process].name : reason.world,
            reason.what, faults_.processes[w->process].name, w->first_cause.text()));
      }
    }
  }
}

void history::check_suspicion(std::size_t process, const std::string& world,
                              std::size_t member, mw::time_point now) {
  if (faults_.processes[process].stopped || faults_.processes[member].stopped) return;
  const auto recovered =
      std::max(faults_.processes[process].resumed, faults_.processes[member].resumed);
  if (now - recovered < 2s || faults_.explains(world, {process, member}, now, 2s)) return;
  complain(fmt::format("liveness: in {} {} is suspect at {}, and nothing happened to it",
                       world, faults_.processes[member].name,
                       faults_.processes[process].name));
}

void history::check_barriers() {
  struct passing {
    std::size_t entered = 0;
    mw::time_point last_entry{};
    std::optional<mw::time_point> first_exit;
    std::size_t members = 0;
  };
  std::map<std::tuple<std::string, std::uint64_t, std::uint64_t, std::uint64_t>, passing>
      all;
  for (const op_entry& op : ops_) {
    if (op.kind != mw::operation_kind::barrier) continue;
    const world_entry* w = find(op.process, op.instance);
    if (!w) continue;
    passing& p = all[{w->name, w->epoch, op.number, w->id}];
    p.members = w->members.size();
    ++p.entered;
    p.last_entry = std::max(p.last_entry, op.started);
    if (op.fate == op_fate::done) {
      p.first_exit = std::min(p.first_exit.value_or(op.ended), op.ended);
    }
  }
  for (const auto& [key, p] : all) {
    if (!p.first_exit) continue;
    if (p.entered < p.members || *p.first_exit < p.last_entry) {
      complain(fmt::format("law 1: barrier {} of {}@{} was passed before all had entered",
                           std::get<2>(key), std::get<0>(key), std::get<1>(key)));
    }
  }
}

}  // namespace manyworlds_tests
