#include "order.hpp"

#include <mutex>

namespace nccl_emulation {

std::uint64_t operation_order::take() {
  std::lock_guard lock{flag_->guard};
  waiting_.insert(next_);
  return next_++;
}

bool operation_order::enter(std::uint64_t ticket) {
  std::unique_lock lock{flag_->guard};
  flag_->changed.wait(lock,
                      [&] { return flag_->raised() || *waiting_.begin() == ticket; });
  return !flag_->raised();
}

void operation_order::leave(std::uint64_t ticket) {
  std::lock_guard lock{flag_->guard};
  waiting_.erase(ticket);
  flag_->changed.notify_all();
}

bool operation_order::wait_below(std::size_t count) {
  std::unique_lock lock{flag_->guard};
  flag_->changed.wait(lock, [&] { return flag_->raised() || waiting_.size() < count; });
  return !flag_->raised();
}

bool operation_order::wait_idle(const abort_flag* cut) {
  std::unique_lock lock{flag_->guard};
  flag_->changed.wait(
      lock, [&] { return waiting_.empty() || (cut != nullptr && cut->raised()); });
  return waiting_.empty();
}

}  // namespace nccl_emulation
