// How communicators end: finalise, destroy, abort, revoke.
#include "call.hpp"
#include "settings.hpp"
#include "teardown.hpp"

#include <optional>

using namespace nccl_emulation;

NCCL_CALL(ncclResult_t, ncclCommFinalize, (ncclComm_t comm)) {
  if (comm == nullptr) return ncclSuccess;
  const use c{find(comm, "ncclCommFinalize"), "ncclCommFinalize"};
  const auto result = in_group("ncclCommFinalize", [&]() -> ncclResult_t {
    auto failure = ensure_ready(*c.shared());
    if (failure == ncclSuccess && c->finalized)
      failure = complain(ncclInvalidArgument, "finalised or revoked before");
    if (failure != ncclSuccess) {
      if (!c->blocking) c->async_result = failure;
      return failure;
    }
    c->finalized = true;
    return group::current().add({c.shared(), false, [shared = c.shared()] {
                                   return close_down(*shared, chosen().destroy,
                                                     shared->cut());
                                 }});
  });
  if (result != ncclSuccess && result != ncclInProgress) return result;
  return state_or(*c.shared(), result);
}

NCCL_CALL(ncclResult_t, ncclCommDestroy, (ncclComm_t comm)) {
  if (comm == nullptr) return ncclSuccess;
  const use c{find(comm, "ncclCommDestroy"), "ncclCommDestroy"};
  if (const auto failure = ensure_ready(*c.shared())) return failure;
  c->destroying = true;
  const auto result = in_group("ncclCommDestroy", [&] {
    return group::current().add({c.shared(), true, [shared = c.shared()] {
                                   return reclaim(shared, chosen().destroy);
                                 }});
  });
  delist(*c.shared());
  return result;
}

NCCL_CALL(ncclResult_t, ncclCommAbort, (ncclComm_t comm)) {
  constexpr int first_with_group_abort = 22200;
  if (comm == nullptr) return ncclSuccess;
  const use c{find(comm, "ncclCommAbort"), "ncclCommAbort"};
  if (chosen().version < first_with_group_abort) {
    // At once, also in a group (2.18.3 src/init.cc).
    c->raise_flags();
    c->destroying = true;
    ensure_ready(*c.shared());
    const auto result = reclaim(c.shared(), chosen().abort);
    delist(*c.shared());
    return result;
  }
  const auto result = in_group("ncclCommAbort", [&] {
    c->raise_flags();
    c->destroying = true;
    ensure_ready(*c.shared());
    return group::current().add({c.shared(), true, [shared = c.shared()] {
                                   return reclaim(shared, chosen().abort);
                                 }});
  });
  delist(*c.shared());
  return result;
}

NCCL_CALL(ncclResult_t, ncclCommRevoke, (ncclComm_t comm, int flags)) {
  constexpr int first_with_revoke = 22807;
  if (comm == nullptr) return ncclSuccess;
  if (chosen().version < first_with_revoke)
    return complain(ncclInvalidUsage, "ncclCommRevoke is not in this version");
  const auto c = find(comm, "ncclCommRevoke");
  // It frees nothing, so it may meet a call that looks at the flags it raises.
  std::optional<use> alone;
  if (!c->looks_at_flag) alone.emplace(c, "ncclCommRevoke");
  if (flags != NCCL_REVOKE_DEFAULT || c->destroying || c->finalized || c->revoked)
    return complain(ncclInvalidArgument, "this communicator cannot be revoked so");
  const auto result = in_group("ncclCommRevoke", [&] {
    c->raise_flags();
    c->revoked = true;
    ensure_ready(*c);
    c->finalized = true;
    return group::current().add({c, false,
                                 [shared = c] {
                                   const auto closed =
                                       close_down(*shared, chosen().revoke, {});
                                   // Lowered too early, a call that waits would miss it.
                                   while (shared->looks_at_flag) sleep_for(1, {});
                                   if (!shared->destroying) shared->flag->lower();
                                   return closed;
                                 },
                                 !alone});
  });
  if (result != ncclSuccess && result != ncclInProgress) return result;
  return state_or(*c, result);
}

NCCL_CALL(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t* state)) {
  if (comm == nullptr) return missing("ncclGetAsyncError", "comm");
  if (state == nullptr) return missing("ncclGetAsyncError", "asyncError");
  const auto c = find(comm, "ncclCommGetAsyncError");
  if (c->blocking) {
    // Two plain loads in NCCL: any thread may look while the communicator lives.
    *state = c->async_result.load();
    if (*state == ncclSuccess) *state = c->proxy_result.load();
    return ncclSuccess;
  }
  const use polled{c, "ncclCommGetAsyncError"};
  *state = poll_state(*c);
  return ncclSuccess;
}
