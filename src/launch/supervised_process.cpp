#include "manyworlds/launch/supervised_process.hpp"

#include <utility>

#include "launch/guard_connection.hpp"
#include "launch/process_core.hpp"
#include "manyworlds/launch/process_guard.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

supervised_process::supervised_process(runtime& rt, process_options how,
                                       source_position where) {
  process_plan plan{std::move(how.what_),
                    std::move(how.output_),
                    std::move(how.errors_),
                    how.inherits_input_,
                    how.policy_,
                    std::move(how.told_)};
  if (how.guard_) plan.guard = &access::core(*how.guard_);
  core_ = std::make_shared<process_core>(rt, std::move(plan), where);
}

supervised_process::~supervised_process() { core_->abandon(); }

task<void> supervised_process::started() { return core_->started(); }
exit_awaitable supervised_process::ended() { return exit_awaitable(core_->ended()); }
task<void> supervised_process::stop(grace patience) {
  return core_->stop(patience.length);
}

bool supervised_process::leave_descendants() noexcept {
  return core_->leave_descendants();
}

bool supervised_process::signal(int number) noexcept {
  hosted_process* const running = core_->running();
  if (running) running->signal(number);
  return running != nullptr;
}

pid_t supervised_process::pid() const noexcept {
  const hosted_process* const running = core_->running();
  return running ? running->pid() : 0;
}

std::uint64_t supervised_process::starts() const noexcept { return core_->starts(); }

}  // namespace manyworlds::inline v0
