// Split and shrink. Non-blocking, both return success at once: the parent's state tells
// the end, and the new handle stays null until then (2.28.9 src/init.cc
// ncclCommInitChildComm).
#include "call.hpp"
#include "child.hpp"
#include "plan.hpp"

#include <algorithm>
#include <cstdlib>

using namespace nccl_emulation;

namespace {

struct birth {
  shared_communicator parent;
  shared_communicator child;
  ncclComm_t* made;
  child_request request;

  ncclResult_t run() const {
    const interrupts cut{parent->flag.get(), child ? child->flag.get() : nullptr};
    const auto result = make_child(parent, child, request, cut);
    {
      std::lock_guard lock{parent->child_guard};
      parent->child_flag.reset();
    }
    // Even when it failed, as NCCL does: the caller has something to abort.
    if (child) __atomic_store_n(made, enlist(child), __ATOMIC_RELEASE);
    return result;
  }
};

/// Puts the making of a child into the group; `share` is the parent's wish for it.
ncclResult_t conceive(const shared_communicator& parent, ncclComm_t* made,
                      const ncclConfig_t* config, bool share, bool wanted,
                      child_request request) {
  auto result = ensure_ready(*parent);
  if (result != ncclSuccess) return result;
  *made = nullptr;
  shared_communicator child;
  if (wanted) {
    child = config == nullptr ? configured_like(*parent)
                              : configured(config, parent->device, result);
    if (!child) return result;
    std::lock_guard lock{parent->child_guard};
    if (share && !parent->revoked)
      child->share_flag(parent->flag);
    else
      parent->child_flag = child->flag;
  }
  request.purpose += std::to_string(++parent->children);
  const birth born{parent, child, made, std::move(request)};
  return group::current().add({parent, false, [born] { return born.run(); }});
}

// Sorts the caller's list, as NCCL does in place, and gives who remains.
ncclResult_t survivors(const communicator& c, int* excluded, int count,
                       std::vector<int>& remaining) {
  if (excluded == nullptr) return missing("ncclCommShrink", "excludeRanksList");
  if (count <= 0) return complain(ncclInvalidArgument, "no rank to exclude");
  std::sort(excluded, excluded + count);
  if (std::binary_search(excluded, excluded + count, c.rank))
    return complain(ncclInvalidArgument, "an excluded rank called ncclCommShrink");
  remaining = all_ranks(c);
  std::erase_if(remaining, [&](int rank) {
    return std::binary_search(excluded, excluded + count, rank);
  });
  return ncclSuccess;
}

}  // namespace

NCCL_CALL(ncclResult_t, ncclCommSplit,
          (ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t* config)) {
  const auto name = "ncclCommSplit";
  if (comm == nullptr) return group::current().note(missing(name, "comm"));
  if (made == nullptr) return group::current().note(missing(name, "newcomm"));
  const use c{find(comm, name), name};
  return in_group(name, [&] {
    return conceive(c.shared(), made, config, c->split_share == 1,
                    color != NCCL_SPLIT_NOCOLOR,
                    {"split", all_ranks(*c.shared()), color, key});
  });
}

NCCL_CALL(ncclResult_t, ncclCommShrink,
          (ncclComm_t comm, int* excluded, int count, ncclComm_t* made,
           ncclConfig_t* config, int flags)) {
  const auto name = "ncclCommShrink";
  if (comm == nullptr) return group::current().note(missing(name, "comm"));
  if (made == nullptr) return group::current().note(missing(name, "newcomm"));
  const use c{find(comm, name), name};
  const bool cut_first = (flags & NCCL_SHRINK_ABORT) != 0;
  return in_group(name, [&]() -> ncclResult_t {
    if (cut_first) {
      // In the calling thread, whatever the config says.
      c->raise_flags();
      c->order.wait_idle(nullptr);
      c->flag->lower();
    }
    std::vector<int> remaining;
    if (const auto wrong = survivors(*c.shared(), excluded, count, remaining))
      return wrong;
    std::string purpose = "shrink";
    for (int rank : remaining) purpose += ' ' + std::to_string(rank);
    return conceive(c.shared(), made, config, !cut_first && c->shrink_share == 1, true,
                    {purpose + '/', remaining, 0, c->rank});
  });
}
