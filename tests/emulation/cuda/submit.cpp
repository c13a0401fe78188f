#include "submit.hpp"

#include "driver_lock.hpp"
#include "settings.hpp"

namespace emulated {

bool is_legacy(const stream& asked) {
  return machine::here().on(asked.device).legacy.get() == &asked;
}

cudaError_t refuse_if_captured(const stream_ptr& asked) {
  captures& all = machine::here().capturing;
  return is_legacy(*asked) ? all.refuse_legacy(asked->device) : all.refuse(*asked);
}

cudaError_t submit(const stream_ptr& to, const node_ptr& work) {
  machine& all = machine::here();
  auto result = cudaSuccess;
  bool captured = false;
  if (is_legacy(*to)) {
    result = all.capturing.refuse_legacy(to->device);
  } else {
    result = all.capturing.add(to, work, captured);
  }
  if (result != cudaSuccess) {
    work->disown();
    return result;
  }
  if (captured) return cudaSuccess;
  try {
    all.on(to->device).enqueue(*to, work);
  } catch (...) {
    work->disown();
    throw;
  }
  return cudaSuccess;
}

cudaError_t submit_kernel(const stream_ptr& to, const node_ptr& work) {
  work->become_kernel(to->device);
  if (!machine::here().next_kernel_breaks()) return submit(to, work);
  const int ordinal = to->device;
  const auto breaks = std::make_shared<node>(
      // Holds the work for its release: it does not run.
      [work, ordinal] {
        machine::here().break_device(ordinal, cudaErrorIllegalAddress);
      });
  const auto result = submit(to, breaks);
  if (result != cudaSuccess) work->disown();
  return result;
}

cudaError_t load_kernel(device& on, const void* kernel) {
  if (!chosen().loads_lazily || on.has_loaded(kernel)) return cudaSuccess;
  const driver_lock_kept while_waiting;
  const auto result = wait_for_device(on);
  if (result == cudaSuccess) on.note_loaded(kernel);
  return result;
}

moment_ptr mark(const stream_ptr& on) {
  auto made = std::make_shared<moment>();
  machine::here().on(on->device).enqueue(*on, made);
  return made;
}

cudaError_t shown_by(const stream& asked) {
  const auto error = machine::here().broken();
  if (error == cudaSuccess || !chosen().idle_hides_error) return error;
  // In this order: the break is visible before it has taken the work of every stream.
  return asked.busy() || asked.lost_work() ? error : cudaSuccess;
}

cudaError_t shown_by(const moment_ptr& asked) {
  const auto error = machine::here().broken();
  if (error == cudaSuccess || !chosen().idle_hides_error) return error;
  return asked && !asked->was_reached() ? error : cudaSuccess;
}

cudaError_t wait_on_host(const moment_ptr& mark) {
  // A mark pushed behind the break's sweep stays behind work that may never end; the
  // break is visible then.
  const driver_unlocked meanwhile;
  if (machine::here().broken() == cudaSuccess) mark->wait();
  return machine::here().broken();
}

cudaError_t wait_for_device(device& waited_for) {
  for (const moment_ptr& each : waited_for.mark_all())
    static_cast<void>(wait_on_host(each));
  return machine::here().broken();
}

}  // namespace emulated
