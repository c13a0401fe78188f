// What is wrong with an operation on device memory, before anybody is told of it.
#include <fmt/format.h>

#include "nccl_backend.hpp"
#include "view_checks.hpp"

namespace manyworlds::inline v0::nccl {

namespace {

struct counts {
  std::size_t in;
  std::size_t out;
};

}  // namespace

collective_terms nccl_backend::terms_of(const operation& op) const noexcept {
  const device_part& part = *op.device;
  collective_terms terms;
  terms.kind = op.kind;
  if (changes_memory(op.kind)) return terms;
  const const_device_view& in = part.source[0];
  const device_view& out = part.target[0];
  terms.by = part.by;
  terms.root = part.root;
  switch (op.kind) {
    case operation_kind::scatter:
    case operation_kind::reduce_scatter:
      terms.type = out.type();
      terms.count = out.count();
      break;
    case operation_kind::all_to_all:
      terms.type = in.type();
      terms.count = in.count() / static_cast<std::size_t>(size_);
      break;
    default:
      terms.type = in.type();
      terms.count = in.count();
  }
  return terms;
}

std::string nccl_backend::objection_to(const operation& op) const {
  if (op.kind == operation_kind::native || changes_memory(op.kind)) return {};
  const device_part& part = *op.device;
  if (part.unmatched && op.peer == no_rank && !is_collective(op.kind)) {
    return "an unmatched receive names its sender: nobody is asked who it is";
  }
  if (part.unmatched && op.head_bytes > 0) {
    return "an unmatched send carries no head: nothing travels but its payload";
  }
  return is_collective(op.kind) ? objection_to_counts(op) : std::string();
}

std::string nccl_backend::objection_to_views(device_job& job) const {
  device_launch& l = *job.launch;
  for (std::size_t i = 0; i < l.views.size(); ++i) {
    if (l.views[i].empty()) continue;
    CUstream_st* const stream = l.views[i].stream().handle();
    if (!stream) {
      return fmt::format(
          "view {}: it has no stream; the default stream's name is "
          "cudaStreamLegacy",
          i);
    }
    if (stream == cudaStreamPerThread &&
        options_.device.launch == launch_on::own_thread) {
      return fmt::format(
          "view {}: cudaStreamPerThread is another stream on the thread "
          "that launches: make one, or launch on the reactor",
          i);
    }
  }
  l.device = device_->ordinal();
  // On the reactor only where the reactor is to call NCCL itself.
  const bool may_ask = options_.device.launch == launch_on::reactor;
  return may_ask ? nccl::objection_to_views(l.views, l.device) : std::string();
}

bool nccl_backend::must_be_checked(const device_job& job) const noexcept {
  return options_.device.launch == launch_on::own_thread &&
         !known_.has(job.launch->views);
}

std::string nccl_backend::objection_to_counts(const operation& op) const {
  const device_part& part = *op.device;
  const const_device_view& in = part.source[0];
  const device_view& out = part.target[0];
  const auto members = static_cast<std::size_t>(size_);
  const bool has_root =
      op.kind == operation_kind::broadcast || op.kind == operation_kind::reduce ||
      op.kind == operation_kind::gather || op.kind == operation_kind::scatter;
  if (has_root && (part.root < 0 || part.root >= size_)) {
    return fmt::format("root {} in a world of {} members", part.root, size_);
  }
  const bool is_root = part.root == self_;
  bool uses_in = true;
  bool uses_out = true;
  counts wanted{in.count(), in.count()};
  switch (op.kind) {
    case operation_kind::reduce:
      uses_out = is_root;
      break;
    case operation_kind::all_gather:
      wanted.out = in.count() * members;
      break;
    case operation_kind::gather:
      wanted.out = in.count() * members;
      uses_out = is_root;
      break;
    case operation_kind::scatter:
      uses_in = is_root;
      [[fallthrough]];
    case operation_kind::reduce_scatter:
      wanted = {out.count() * members, out.count()};
      break;
    case operation_kind::all_to_all:
      if (in.count() % members != 0) {
        return fmt::format("{} elements cannot be divided among {} members", in.count(),
                           size_);
      }
      if (size_ > 1 && in.data() == out.data() && !in.empty()) {
        return "all_to_all is not possible in place";
      }
      break;
    default:
      break;
  }
  if (uses_in && uses_out && in.type() != out.type()) {
    return fmt::format("input of {}, output of {}", name_of(in.type()),
                       name_of(out.type()));
  }
  if ((uses_in && in.count() != wanted.in) || (uses_out && out.count() != wanted.out)) {
    return fmt::format("{} elements in and {} out; {} in and {} out are needed",
                       in.count(), out.count(), wanted.in, wanted.out);
  }
  return {};
}

}  // namespace manyworlds::inline v0::nccl
