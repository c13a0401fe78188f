// How the emulation speaks of misuse: as a result with a text, or by ending the process.
#pragma once

#include <nccl.h>

#include <string>

namespace nccl_emulation {

/// Keeps `text` for ncclGetLastError and gives `result` back.
ncclResult_t complain(ncclResult_t result, std::string text);

/// The last complaint of this process; stays valid in this thread until its next call.
const char* last_complaint();

/// For what the real library leaves undefined and a test must never do: one line on
/// stderr, abort.
[[noreturn]] void end_process(const char* call, const void* comm, const char* what);

}  // namespace nccl_emulation
