#include "nccl/communicator.hpp"

#include <fmt/format.h>

#include <utility>

#include "duration_text.hpp"
#include "nccl/communicator_life.hpp"
#include "nccl/descriptor_limit.hpp"
#include "nccl/nccl_library.hpp"

namespace manyworlds::inline v0::detail::nccl {

communicator::communicator(std::shared_ptr<device> on, reactor& home,
                           const device_options& options, const world_name& name,
                           std::uint64_t epoch)
    : home_(home),
      life_(std::make_shared<communicator_life>(std::move(on), options, name, epoch)) {}

communicator::~communicator() { release(); }

const ncclUniqueId& communicator::unique_id() const noexcept { return life_->id; }
ncclComm_t communicator::handle() const noexcept { return life_->data; }
cudaStream_t communicator::stream() const noexcept { return life_->stream; }
device_costs communicator::costs() const { return life_->costs; }
device& communicator::on() const noexcept { return *life_->on; }
const std::shared_ptr<call_gate>& communicator::gate() const noexcept {
  return life_->gate;
}
const std::shared_ptr<completion>& communicator::completions() const noexcept {
  return life_->completions;
}

void communicator::make_unique_id(work& done) {
  await_job(&communicator_life::make_unique_id, stage::asking, done);
}

void communicator::create(const ncclUniqueId& id, int rank, int size, work& done) {
  life_->id = id;
  life_->rank = rank;
  life_->size = size;
  await_job(&communicator_life::create, stage::making, done);
}

void communicator::adopt(int rank, int size, work& done) {
  life_->rank = rank;
  life_->size = size;
  await_job(&communicator_life::adopt, stage::making, done);
}

void communicator::connect_later(work& stands) {
  stands_ = std::make_shared<async_result>(home_, [&stands] { stands.run(); });
  life_->stands = stands_;
}

void communicator::connect(launch_turn turn) { life_->let_connect(std::move(turn)); }

void communicator::await_job(void (communicator_life::*job)(async_result&), stage next,
                             work& done) {
  done_ = &done;
  stage_ = next;
  result_ = std::make_shared<async_result>(home_, [this] { hear(); });
  device& on = *life_->on;
  const bool launches = life_->options.launch == launch_on::own_thread;
  if (!on.watching().start(on.helpers()) ||
      (launches && !on.launching().start(on.helpers()))) {
    return refuse();
  }
  const bool posted = life_->on->helpers().post(
      [life = life_, job, heard = result_] { ((*life).*job)(*heard); });
  if (!posted) return refuse();
  home_.timers().arm(deadline_, later(home_.now(), life_->options.create));
}

void communicator::refuse() {
  error_ = {cause::out_of_resources, "no helper thread could be started for NCCL"};
  forget_result();
  stage_ = stage::over;
  home_.schedule(*std::exchange(done_, nullptr));
}

void communicator::hear() {
  forget_result();
  error_ = life_->error;
  if (error_) {
    error_.text += descriptor_limit_note();
    stage_ = stage::over;
  } else {
    stage_ = stage_ == stage::asking ? stage::idle : stage::ready;
  }
  std::exchange(done_, nullptr)->run();
}

void communicator::expire() noexcept {
  if (stage_ == stage::quiescing) {
    lost_ = true;
    life_->lost.store(true, std::memory_order_relaxed);
    forget_result();
    stage_ = stage::broken;
  } else {
    // If it is over, what came of it is on its way here.
    if (!abandon_making()) return;
    error_ = {
        cause::overdue,
        fmt::format("the communicator was not made within {} (device_options::create): "
                    "are all members there, and can their GPUs reach each other?{}",
                    duration_text(life_->options.create), descriptor_limit_note())};
    forget_result();
    stage_ = stage::over;
  }
  std::exchange(done_, nullptr)->run();
}

void communicator::forget_result() noexcept {
  home_.timers().disarm(deadline_);
  // What was to be made is made, or is given up.
  if (stage_ != stage::asking && stands_) std::exchange(stands_, nullptr)->drop();
  if (auto forgotten = std::exchange(result_, nullptr)) forgotten->drop();
}

bool communicator::abandon_making() {
  if (!life_->give_up_making()) return false;
  life_->gate->close();
  if (stage_ == stage::making) {
    const device_options& options = life_->options;
    if (options.communicator && !options.owns_communicator && options.on_break) {
      options.on_break(options.communicator, options.on_break_context);
    }
    // It may be stuck while it connects the peers.
    (void)life_->on->helpers().post([life = life_] { (void)life->revoke(); });
  }
  return true;
}

ncclResult_t communicator::poll() noexcept {
  ncclResult_t state = ncclSuccess;
  if (stage_ == stage::ready) {
    (void)nccl_library::get().ncclCommGetAsyncError(life_->data, &state);
  }
  return state;
}

// Stops listening for what is in progress. Returns what there is to be ended.
communicator::stage communicator::stop_waiting() {
  life_->gate->close();
  forget_result();
  done_ = nullptr;
  const bool is_abandoned =
      (stage_ == stage::asking || stage_ == stage::making) && abandon_making();
  // Otherwise it is over, and the answer was on its way here.
  if (stage_ == stage::making && !is_abandoned && !life_->error) stage_ = stage::ready;
  return std::exchange(stage_, stage::over);
}

void communicator::quiesce(work& quiet) {
  if (stop_waiting() == stage::ready) {
    begin_quiescing(quiet);
  } else {
    home_.schedule(quiet);
  }
}

void communicator::begin_quiescing(work& quiet) {
  const device_options& options = life_->options;
  helper_threads& helpers = life_->on->helpers();
  stage_ = stage::quiescing;
  done_ = &quiet;
  result_ = std::make_shared<async_result>(home_, [this] {
    forget_result();
    stage_ = stage::broken;
    std::exchange(done_, nullptr)->run();
  });
  home_.timers().arm(deadline_, later(home_.now(), options.quiesce));
  if (!life_->owns_communicator && options.on_break) {
    options.on_break(life_->data, options.on_break_context);
  }
  (void)helpers.post([life = life_] { life->break_up(); });
  life_->expect_watching(true);
  if (!helpers.post([life = life_, heard = result_] { life->await_quiet(*heard); })) {
    life_->expect_watching(false);
  }
}

void communicator::release() {
  const stage before = stop_waiting();
  const bool is_healthy = before == stage::ready;
  // Who releases a healthy one has seen the end of all that was launched.
  if (is_healthy) life_->is_quiet.store(true, std::memory_order_relaxed);
  if (!is_healthy && before != stage::quiescing && before != stage::broken) return;
  life_->lost.store(true, std::memory_order_relaxed);
  life_->expect_freeing();
  const bool posted = life_->on->helpers().post([life = life_, is_healthy] {
    is_healthy ? life->free_healthy() : life->free_broken();
  });
  if (!posted) life_->on->note_leaked();
}

}  // namespace manyworlds::inline v0::detail::nccl
