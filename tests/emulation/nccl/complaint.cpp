#include "complaint.hpp"

#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace nccl_emulation {

namespace {

struct shared_text {
  std::mutex guard;
  std::string text;
};

// Never destroyed: threads of the application may outlive the destructors of this
// library.
shared_text& last() {
  static auto* only = new shared_text;
  return *only;
}

}  // namespace

ncclResult_t complain(ncclResult_t result, std::string text) {
  std::lock_guard lock{last().guard};
  last().text = std::move(text);
  return result;
}

const char* last_complaint() {
  thread_local std::string copy;
  std::lock_guard lock{last().guard};
  copy = last().text;
  return copy.c_str();
}

void end_process(const char* call, const void* comm, const char* what) {
  std::fprintf(stderr, "emulated NCCL: %s(%p): %s\n", call, comm, what);
  std::abort();
}

}  // namespace nccl_emulation
