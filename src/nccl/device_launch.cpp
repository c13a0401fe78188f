#include "nccl/device_launch.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "nccl/cuda_library.hpp"
#include "nccl/launcher.hpp"
#include "nccl/nccl_library.hpp"
#include "nccl/view_checks.hpp"

namespace manyworlds::inline v0::detail::nccl {

void device_launch::reset() noexcept {
  kind = operation_kind::none;
  peer = no_rank;
  is_matched = false;
  layout = {};
  views.clear();
  terms = {};
  call = nullptr;
  context = nullptr;
  group.clear();
  name = nullptr;
  bytes = 0;
  streams_.clear();
  clear_outcome();
}

void device_launch::clear_outcome() noexcept {
  is_posted_ = false;
  only_checks_ = false;
  cause_ = cause::none;
  error_.clear();
  thrown_ = nullptr;
  launched_.store(false, std::memory_order_relaxed);
}

void device_launch::collect_streams() {
  for (const const_device_view& v : views) {
    CUstream_st* const where = v.stream().handle();
    if (v.empty() || where == stream) continue;
    if (std::find(streams_.begin(), streams_.end(), where) == streams_.end()) {
      streams_.push_back(where);
    }
  }
}

void device_launch::post_to(class launcher& where) noexcept {
  itself_ = shared_from_this();
  is_posted_ = true;
  where.post(*this);
}

void device_launch::post_check_to(class launcher& where) noexcept {
  only_checks_ = true;
  look_.store(look::waiting, std::memory_order_relaxed);
  post_to(where);
}

bool device_launch::give_up_check() noexcept {
  look seen = look::waiting;
  return look_.compare_exchange_strong(seen, look::given_up, std::memory_order_acq_rel) ||
         seen == look::given_up || is_launched();
}

void device_launch::run_posted() noexcept {
  const auto alive = std::move(itself_);
  run();
}

void device_launch::run() noexcept {
  try {
    launch();
  } catch (const std::logic_error& e) {
    refuse(cause::invalid_argument, e.what());
  } catch (const std::exception& e) {
    refuse(cause::out_of_resources, e.what());
  }
  set_launched();
}

void device_launch::set_launched() noexcept {
  turn.give_up();
  for (const auto& other : group) {
    other->cause_ = cause_;
    other->error_ = error_;
    other->launched_.store(true, std::memory_order_release);
  }
  launched_.store(true, std::memory_order_release);
}

bool device_launch::succeeded(cudaError_t result) {
  if (result == cudaSuccess) return true;
  refuse(cause::device_failed, cuda_library::get().describe(result));
  return false;
}

void device_launch::launch() {
  if (only_checks_) {
    look seen = look::waiting;
    if (look_.compare_exchange_strong(seen, look::asking, std::memory_order_acq_rel)) {
      check_views();
    }
    return;
  }
  if (!gate->enter()) return refuse(cause::device_failed, "the world is broken");
  // Also when there is no memory left: who frees the communicator waits for it.
  struct leaver {
    call_gate& of;
    ~leaver() { of.leave(); }
  } const inside{*gate};
  const thread_range shown(name, bytes);
  note_first();
  if (!check_streams() || !order(&completion::join)) return;
  const ncclResult_t result = call_nccl();
  if (result != ncclSuccess) {
    return refuse(cause::nccl_failed, nccl_library::get().describe(result, on));
  }
  (void)(succeeded(completions->mark(number)) && order(&completion::release_to));
}

void device_launch::note_first() noexcept {
  const auto note = [this](const device_launch& l) {
    std::uint64_t bytes = l.terms.count * size_of(l.terms.type);
    if (is_message(l.kind)) {
      for (const const_device_view& v : l.views) bytes += v.size_bytes();
    }
    if (gate->is_new(l.kind, bytes)) gate->note_first();
  };
  note(*this);
  for (const auto& other : group) note(*other);
}

void device_launch::check_views() {
  std::string wrong = validate_views(views, device);
  if (!wrong.empty()) refuse(cause::invalid_argument, std::move(wrong));
}

template <class Predicate>
bool device_launch::all_streams(Predicate is_right) const {
  const auto of = [&](const device_launch& l) {
    return std::all_of(l.streams_.begin(), l.streams_.end(), is_right);
  };
  return of(*this) && std::all_of(group.begin(), group.end(),
                                  [&](const auto& other) { return of(*other); });
}

// A capture may have begun since the views were checked: ordering the world's stream
// against a captured one would draw it into the capture.
bool device_launch::check_streams() {
  return all_streams([this](cudaStream_t s) {
    std::string wrong = validate_stream(device_stream(s));
    if (wrong.empty()) return true;
    refuse(cause::invalid_argument, std::move(wrong));
    return false;
  });
}

bool device_launch::order(ordering how) {
  return all_streams([&](cudaStream_t s) { return succeeded(((*completions).*how)(s)); });
}

}  // namespace manyworlds::inline v0::detail::nccl
