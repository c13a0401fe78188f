#include "job.hpp"

#include "complaint.hpp"

namespace nccl_emulation {

void background_job::join() {
  std::lock_guard lock{guard_};
  if (thread_.joinable()) thread_.join();
}

ncclResult_t poll_state(communicator& c) {
  auto state = c.async_result.load(std::memory_order_acquire);
  if (state == ncclSuccess) state = c.proxy_result.load(std::memory_order_acquire);
  if (state == ncclSuccess && c.job) {
    c.job->join();
    c.job.reset();
  }
  return state;
}

ncclResult_t ensure_ready(communicator& c) {
  if (c.flag->raised()) {
    if (c.job) c.job->join();
    c.job.reset();
    return ncclSuccess;
  }
  if (const auto lasting = c.unusable.load(); lasting != ncclSuccess)
    return complain(lasting, "an earlier group with this communicator failed");
  const auto state = poll_state(c);
  if (state != ncclInProgress) return state;
  return complain(
      ncclInvalidArgument,
      "Attempt to use communicator before the previous operation returned ncclSuccess");
}

void set_state(communicator& c, ncclResult_t result) {
  if (!c.poisoned) c.async_result.store(result, std::memory_order_release);
}

}  // namespace nccl_emulation
