#include "simulation/history.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace manyworlds_tests {

namespace {

// A dead or silent peer breaks its worlds within the silence limit; then come looks, four
// a heartbeat, and a turn.
constexpr mw::duration noticing = 5s + 1s;

double milliseconds(mw::duration d) { return static_cast<double>(d.count()) / 1e6; }

}  // namespace

void history::complain(std::string what) {
  constexpr std::size_t most = 20;
  if (auto describe = std::exchange(describe_, nullptr)) scene_ = describe();
  if (complaints_.size() < most) complaints_.push_back(std::move(what));
}

world_entry* history::entry_of(std::size_t process, std::uint64_t instance) {
  const auto found = worlds_.find({process, instance});
  return found == worlds_.end() ? nullptr : &found->second;
}
const world_entry* history::find(std::size_t process, std::uint64_t instance) const {
  const auto found = worlds_.find({process, instance});
  return found == worlds_.end() ? nullptr : &found->second;
}

std::string history::text(const op_entry& op) const {
  const auto found = worlds_.find({op.process, op.instance});
  const std::string world =
      found == worlds_.end()
          ? "a world not formed"
          : fmt::format("{}@{}", found->second.name, found->second.epoch);
  return fmt::format("{} of {} in {} with rank {} on lane {}, number {}, from {:.3f} ms",
                     mw::name_of(op.kind), faults_.processes[op.process].name, world,
                     op.peer, op.lane, op.number,
                     milliseconds(op.started.time_since_epoch()));
}

std::string history::waiting_text() const {
  std::string all;
  for (const std::size_t op : waiting_) all += "  waiting: " + text(ops_[op]) + "\n";
  return all;
}

// --- worlds ----------------------------------------------------------------------------

void history::formed(world_entry entry) {
  const auto [found, is_first] = views_.try_emplace({entry.name, entry.epoch}, entry);
  world_entry& view = found->second;
  if (!is_first && view.id != entry.id) {
    const bool strangers =
        std::none_of(entry.members.begin(), entry.members.end(), [&](std::size_t m) {
          const auto& before = view.members;
          return std::find(before.begin(), before.end(), m) != before.end();
        });
    const bool is_unknown = faults_.store_was_emptied || view.may_be_unknown;
    if (!is_unknown || !strangers) {
      complain(fmt::format("law 6: two worlds are {}@{}", entry.name, entry.epoch));
    }
    view = entry;
  } else if (view.members != entry.members) {
    complain(fmt::format("law 6: {}@{} has other members at {}", entry.name, entry.epoch,
                         faults_.processes[entry.process].name));
  }
  // Connecting has to be given up before that.
  if (faults_.are_apart(entry.members, entry.formed, 6s)) {
    complain(
        fmt::format("formation: {}@{} is formed at {}, and not all can reach each other",
                    entry.name, entry.epoch, faults_.processes[entry.process].name));
  }
  auto& last = last_epoch_[{entry.name, entry.process}];
  if (entry.epoch <= last) {
    complain(fmt::format("law 6: {}@{} was formed at {} after epoch {}", entry.name,
                         entry.epoch, faults_.processes[entry.process].name, last));
  }
  last = entry.epoch;
  worlds_.emplace(std::pair(entry.process, entry.instance), std::move(entry));
}

void history::leaving(std::size_t process, std::uint64_t instance, mw::time_point when) {
  if (world_entry* w = entry_of(process, instance)) w->left = when;
}

void history::broke(std::size_t process, std::uint64_t instance, const mw::failure& f,
                    mw::time_point when) {
  world_entry* w = entry_of(process, instance);
  if (!w) return;
  if (!w->broken) {
    w->broken = when;
    w->first_cause = f;
    if (!faults_.explains(w->name, w->members, when)) {
      complain(
          fmt::format("laws 2 and 10: nothing had happened to {}@{}, and at {} it is "
                      "\"{}\" at {:.3f} ms",
                      w->name, w->epoch, faults_.processes[process].name, f.text(),
                      milliseconds(when.time_since_epoch())));
    }
    return;
  }
  if (w->first_cause.cause != f.cause || w->first_cause.rank != f.rank) {
    complain(fmt::format("law 3: {}@{} at {} broke by \"{}\" and then by \"{}\"", w->name,
                         w->epoch, faults_.processes[process].name, w->first_cause.text(),
                         f.text()));
  }
}

bool history::was_up_after(const std::string& world, mw::time_point when) const {
  return std::any_of(worlds_.begin(), worlds_.end(), [&](const auto& each) {
    const world_entry& w = each.second;
    if (w.name != world) return false;
    const bool ended_before =
        (w.broken && *w.broken < when) || (w.left && *w.left < when);
    return !ended_before;
  });
}

// --- operations ------------------------------------------------------------------------

std::size_t history::started(op_entry op) {
  ops_.push_back(std::move(op));
  waiting_.insert(ops_.size() - 1);
  return ops_.size() - 1;
}

void history::end(std::size_t number, op_fate fate, mw::time_point when) {
  op_entry& op = ops_[number];
  if (op.fate != op_fate::pending) complain("law 1: ended twice: " + text(op));
  op.fate = fate;
  op.ended = when;
  waiting_.erase(number);
}

void history::done(std::size_t number, mw::time_point when) {
  end(number, op_fate::done, when);
  const op_entry& op = ops_[number];
  const world_entry* w = find(op.process, op.instance);
  if (w && w->broken && op.started > *w->broken) {
    complain("law 3: success on a world that was broken: " + text(op));
  }
}

void history::unwound(std::size_t number, mw::time_point when) {
  end(number, op_fate::given_up, when);
}

void history::lost(std::size_t process) {
  std::erase_if(waiting_, [&](std::size_t op) { return ops_[op].process == process; });
}

void history::failed(std::size_t number, const mw::failure& f, mw::time_point when) {
  end(number, op_fate::failed, when);
  ops_[number].cause = f.cause;
  check_failure(ops_[number], f);
}

void history::check_failure(op_entry& op, const mw::failure& f) {
  const world_entry* w = find(op.process, op.instance);
  const mw::time_point since =
      std::max(op.started, faults_.processes[op.process].resumed);
  if (w && w->broken && op.started > *w->broken && op.ended > since + allowed_.at_once) {
    complain("law 3: not at once on a broken world: " + text(op));
  }
  if (f.breaks_world()) {
    if (f.world_instance != op.instance) {
      complain("law 2: the failure of another world: " + f.text() + ", in " + text(op));
    }
    return broke(op.process, op.instance, f, op.ended);
  }
  bool expected = false;
  switch (f.cause) {
    case mw::cause::timed_out:
      expected = op.limit && op.ended - op.started + allowed_.early >= *op.limit;
      break;
    case mw::cause::cancelled:
      expected = op.may_be_given_up;
      break;
    case mw::cause::size_mismatch:
      // When all is cancelled the message of a receive that goes first is the next one's.
      expected = op.may_disagree_in_size || faults_.closing;
      break;
    case mw::cause::cancelled_by_peer:
      expected = op.kind == mw::operation_kind::receive;
      break;
    case mw::cause::closed:
      // Some member left, or was told to.
      expected = w && std::any_of(worlds_.begin(), worlds_.end(), [&](const auto& each) {
                   const world_entry& other = each.second;
                   return other.name == w->name && other.id == w->id && other.left;
                 });
      break;
    default:
      break;
  }
  if (!expected) {
    complain("law 1: an operation that was not given up failed: " + f.text() + ", in " +
             text(op));
  }
}

void history::check_waiting(mw::time_point now) {
  for (const std::size_t number : waiting_) {
    const op_entry& op = ops_[number];
    const process_life& life = faults_.processes[op.process];
    if (life.killed || life.stopped) continue;
    const mw::time_point since = std::max(op.started, life.resumed);
    if (op.limit && now - since > *op.limit + settling + allowed_.slack) {
      complain("law 9: past its deadline: " + text(op));
    }
    const world_entry* w = find(op.process, op.instance);
    if (!w) continue;
    for (const std::size_t member : w->members) {
      const auto& killed = faults_.processes[member].killed;
      if (killed && now - std::max(since, *killed) > noticing + allowed_.slack) {
        complain("law 9: waits for a dead peer: " + text(op));
      }
    }
  }
}

}  // namespace manyworlds_tests
