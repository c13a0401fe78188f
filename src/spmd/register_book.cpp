#include "spmd/register_book.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

register_handle register_book::name(std::weak_ptr<session_core> session) {
  const register_id which = table_.allocate();
  register_handle node(new register_node(which, dropped_, std::move(session)));
  if (which.index >= entries_.size()) entries_.resize(which.index + std::size_t{1});
  entries_[which.index].which = which;
  return node;
}

void register_book::fill(register_id which, const call_record& call) {
  MW_ASSERT(is_live(which), "a register that is filled has a name");
  entry& at = entries_[which.index];
  if (at.named_by == 0) at.named_by = call.id;
  at.made_by = call.id;
  at.function = call.function;
  for (const call_part& part : call.parts) {
    const auto own = std::ranges::find(at.on, part.worker, &holder::worker);
    if (own == at.on.end()) {
      at.on.push_back({part.worker, part.incarnation});
    } else {
      own->incarnation = part.incarnation;
    }
  }
}

void register_book::fail(register_id which, const call_record& call) noexcept {
  if (!is_live(which) || entries_[which.index].made_by != call.id) return;
  for (holder& each : entries_[which.index].on) {
    const bool is_of_call = std::ranges::find(call.parts, each.worker,
                                              &call_part::worker) != call.parts.end();
    if (is_of_call) each.incarnation = 0;
  }
}

void register_book::keep(register_id which, kept_call call) {
  entries_[which.index].replay = std::make_shared<const kept_call>(std::move(call));
}

std::vector<int> register_book::workers_of(register_id which) const {
  std::vector<int> all;
  for (const holder& each : entries_[which.index].on) all.push_back(each.worker);
  return all;
}

failure register_book::entry::never_made() const {
  return failure(cause::register_lost,
                 fmt::format("call {} of {}, which should have made an argument, failed",
                             made_by, function));
}

std::optional<failure> register_book::why_not_filled(register_id which,
                                                     int worker) const {
  if (!is_live(which))
    return failure(cause::register_lost, "a dref was dropped before the call");
  const entry& at = entries_[which.index];
  if (at.find(worker) != nullptr) return std::nullopt;
  return failure(cause::invalid_argument,
                 fmt::format("worker {} has no register of call {} of {}: that went to "
                             "another mesh",
                             worker, at.made_by, at.function));
}

std::optional<failure> register_book::why_not(register_id which, int worker,
                                              std::uint64_t incarnation) const {
  std::optional<failure> why = why_not_filled(which, worker);
  if (why) return why;
  const entry& at = entries_[which.index];
  const holder& here = *at.find(worker);
  if (here.incarnation == incarnation) return std::nullopt;
  if (here.incarnation == 0) return at.never_made();
  why = failure(cause::register_lost,
                fmt::format("what call {} of {} made was lost with incarnation {} of "
                            "worker {}",
                            at.made_by, at.function, here.incarnation, worker));
  why->rank = worker;
  return why;
}

std::optional<failure> register_book::why_never_made(register_id which) const {
  if (!is_live(which)) return std::nullopt;
  const entry& at = entries_[which.index];
  const bool is_there =
      std::ranges::find(at.on, std::uint64_t{0}, &holder::incarnation) == at.on.end();
  return is_there ? std::nullopt : std::optional(at.never_made());
}

std::vector<register_id> register_book::replayable_on(int worker) const {
  std::vector<const entry*> found;
  for (const entry& each : entries_) {
    if (is_live(each.which) && each.replay && each.find(worker) != nullptr)
      found.push_back(&each);
  }
  std::ranges::sort(found, {}, &entry::named_by);
  std::vector<register_id> all;
  for (const entry* each : found) all.push_back(each->which);
  return all;
}

}  // namespace manyworlds::inline v0::detail
