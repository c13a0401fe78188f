// How the calls of nccl.h are exported and what they have in common.
#pragma once

#include "communicator.hpp"
#include "complaint.hpp"
#include "group.hpp"
#include "job.hpp"

#include <nccl.h>

#include <utility>

// As NCCL_API of the real library: pncclX is the function, ncclX a weak alias of it, so
// that a profiler may stand in between.
#define NCCL_CALL(type, name, parameters)                                   \
  extern "C" __attribute__((weak, alias("p" #name), visibility("default"))) \
  type name parameters;                                                     \
  extern "C" __attribute__((visibility("default"))) type p##name parameters

namespace nccl_emulation {

/// The implicit group around every call: the failure of `body` fails it, and what it
/// gives out is its result. Non-blocking callers read the state instead; see each call.
template <class Body>
ncclResult_t in_group(const char* name, Body body) {
  auto& here = group::current();
  here.start();
  const auto result = here.note(body());
  const auto ended = here.end(name);
  return ended != ncclSuccess && ended != ncclInProgress ? ended : result;
}

inline ncclResult_t missing(const char* call, const char* argument) {
  return complain(ncclInvalidArgument,
                  std::string{call} + " : " + argument + " argument is NULL");
}

/// The new state of a non-blocking communicator is the result of the call that changed
/// it.
inline ncclResult_t state_or(communicator& c, ncclResult_t result) {
  return c.blocking ? result : poll_state(c);
}

}  // namespace nccl_emulation
