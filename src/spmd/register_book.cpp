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

void register_book::fill(register_id which, const call_record& call,
                         std::shared_ptr<const kept_call> again) {
  MW_ASSERT(is_live(which), "a register that is filled has a name");
  entry& at = entries_[which.index];
  if (at.named_by == 0) {
    at.named_by = call.id;
    at.function = call.function;
  }
  for (const call_part& part : call.parts) {
    const auto own = std::ranges::find(at.on, part.worker, &holder::worker);
    holder& here = own == at.on.end() ? at.on.emplace_back() : *own;
    here = {part.worker, part.incarnation, call.id, call.function, again, nullptr};
  }
}

void register_book::fail(register_id which, const call_record& call,
                         const std::shared_ptr<const failure>& why) noexcept {
  if (!is_live(which)) return;
  for (holder& each : entries_[which.index].on) {
    // One that another call was to fill later is as that one leaves it.
    if (each.made_by == call.id) each.never_made = why;
  }
}

std::vector<int> register_book::workers_of(register_id which) const {
  std::vector<int> all;
  for (const holder& each : entries_[which.index].on) all.push_back(each.worker);
  return all;
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
                             worker, at.named_by, at.function));
}

std::optional<failure> register_book::why_not(register_id which, int worker,
                                              std::uint64_t incarnation) const {
  std::optional<failure> why = why_not_filled(which, worker);
  if (why) return why;
  const entry& at = entries_[which.index];
  const holder& here = *at.find(worker);
  if (here.never_made) return *here.never_made;
  if (here.incarnation == incarnation) return std::nullopt;
  why = failure(cause::register_lost,
                fmt::format("what call {} of {} made was lost with incarnation {} of "
                            "worker {}",
                            here.made_by, here.function, here.incarnation, worker));
  why->rank = worker;
  return why;
}

std::optional<failure> register_book::why_never_made(register_id which) const {
  if (!is_live(which)) return std::nullopt;
  const entry& at = entries_[which.index];
  const auto absent = std::ranges::find_if(
      at.on, [](const holder& each) { return each.never_made != nullptr; });
  return absent == at.on.end() ? std::nullopt : std::optional(*absent->never_made);
}

std::vector<register_id> register_book::replayable_on(int worker) const {
  std::vector<const entry*> found;
  for (const entry& each : entries_) {
    const holder* const here = is_live(each.which) ? each.find(worker) : nullptr;
    if (here != nullptr && here->again) found.push_back(&each);
  }
  std::ranges::sort(found, {}, &entry::named_by);
  std::vector<register_id> all;
  for (const entry* each : found) all.push_back(each->which);
  return all;
}

}  // namespace manyworlds::inline v0::detail
