#include "nccl/proposal_table.hpp"

#include <algorithm>
#include <utility>

namespace manyworlds::inline v0::detail::nccl {

std::uint64_t proposal_table::propose(placement what, time_point now) {
  const std::uint64_t number = ++last_;
  proposal fresh;
  fresh.number = number;
  for (rank_t r = 0; r < size_; ++r) {
    if (what.members.has(r)) fresh.silent.push_back(r);
  }
  fresh.what = std::move(what);
  fresh.asked = now;
  open_.emplace(number, std::move(fresh));
  return number;
}

proposal_table::verdict proposal_table::hear(rank_t from, const promise_message& m,
                                             time_point now) {
  verdict found;
  if (const auto at = retracted_.find(m.number); at != retracted_.end()) {
    found.took = now - at->second.asked;
    found.what = std::erase(at->second.silent, from) > 0 ? outcome::late : outcome::wrong;
    if (at->second.silent.empty()) retracted_.erase(at);
    return found;
  }
  const auto at = open_.find(m.number);
  if (at == open_.end()) {
    found.what = m.number <= forgotten_ ? outcome::late : outcome::wrong;
    return found;
  }
  proposal& p = at->second;
  if (std::erase(p.silent, from) == 0) {
    found.what = outcome::wrong;
    return found;
  }
  p.latest = std::max(p.latest, m.time);
  if (!p.silent.empty()) return found;
  found.what = outcome::decided;
  found.took = now - p.asked;
  found.decided = std::move(p);
  open_.erase(at);
  return found;
}

template <class Predicate>
std::vector<proposal_table::proposal> proposal_table::take_if(Predicate is_meant) {
  std::vector<proposal> taken;
  for (auto at = open_.begin(); at != open_.end();) {
    if (!is_meant(at->second)) {
      ++at;
      continue;
    }
    if (!at->second.silent.empty()) {
      retracted_[at->first] = {at->second.silent, at->second.asked};
    }
    taken.push_back(std::move(at->second));
    at = open_.erase(at);
  }
  while (retracted_.size() > most_retracted) {
    forgotten_ = std::max(forgotten_, retracted_.begin()->first);
    retracted_.erase(retracted_.begin());
  }
  return taken;
}

std::vector<proposal_table::proposal> proposal_table::take_overdue(time_point now,
                                                                   duration patience) {
  std::vector<members_concerned> overdue;
  return take_if([&](const proposal& p) {
    const members_concerned& members = p.what.members;
    if (std::find(overdue.begin(), overdue.end(), members) != overdue.end()) return true;
    if (now - p.asked < patience) return false;
    overdue.push_back(members);
    return true;
  });
}

std::vector<proposal_table::proposal> proposal_table::take_all() {
  return take_if([](const proposal&) { return true; });
}

std::vector<proposal_table::proposal> proposal_table::take_of(rank_t who) {
  return take_if([&](const proposal& p) { return p.what.members.has(who); });
}

std::optional<time_point> proposal_table::oldest() const noexcept {
  if (open_.empty()) return std::nullopt;
  // Numbers grow with time.
  return open_.begin()->second.asked;
}

}  // namespace manyworlds::inline v0::detail::nccl
