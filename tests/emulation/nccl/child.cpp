#include "child.hpp"

#include "allocation.hpp"
#include "complaint.hpp"
#include "settings.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace nccl_emulation {

std::vector<int> all_ranks(const communicator& c) {
  std::vector<int> ranks(static_cast<std::size_t>(c.count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

ncclResult_t make_child(const shared_communicator& parent,
                        const shared_communicator& child, const child_request& request,
                        interrupts cut) {
  const auto aborted = [] {
    return complain(ncclInternalError, "aborted while the child was being made");
  };
  if (child && sleep_for(chosen().create_ms, cut) == outcome::interrupted)
    return aborted();
  if (child)
    if (const auto failure = load_kernels(*child)) return failure;
  const auto door = doorway::open();
  auto own = door.on(parent->card());
  own.color = request.color;
  own.key = request.key;
  const auto& ranks = request.participants;
  const auto place = std::find(ranks.begin(), ranks.end(), parent->rank) - ranks.begin();
  const auto meeting = derive(*parent, request.purpose);
  auto cards =
      meet(meeting, static_cast<int>(place), static_cast<int>(ranks.size()), own, cut);
  if (!cards) return aborted();
  if (!child) return ncclSuccess;

  std::erase_if(*cards, [&](const auto& card) { return card.color != request.color; });
  std::sort(cards->begin(), cards->end(), [](const auto& a, const auto& b) {
    return std::tuple{a.key, a.rank} < std::tuple{b.key, b.rank};
  });
  for (std::size_t i = 0; i < cards->size(); ++i) {
    if ((*cards)[i].rank == parent->rank) child->rank = static_cast<int>(i);
  }
  for (std::size_t i = 0; i < cards->size(); ++i) (*cards)[i].rank = static_cast<int>(i);
  child->name = meeting + '/' + std::to_string(request.color);
  const auto result = form(*child, door, std::move(*cards), cut);
  if (result != ncclSuccess) return result;
  child->initialised = true;
  add_sibling(child);
  return ncclSuccess;
}

}  // namespace nccl_emulation
