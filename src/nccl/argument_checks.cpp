#include "nccl/argument_checks.hpp"

#include <fmt/format.h>

#include "nccl/nccl_library.hpp"

namespace manyworlds::inline v0::detail::nccl {

namespace {

/// NCCL knows the types of 8 bits from 2.24 on. It computes with them on devices from
/// compute capability 9.0 on (2.28.9 src/enqueue.cc, "FP8 reduction support begins with
/// sm90 capable devices").
constexpr int float8_version = 22400;
constexpr int float8_capability = 90;

struct counts {
  std::size_t in;
  std::size_t out;
};

std::string validate_counts(const operation& op, rank_t self, rank_t size) {
  const device_part& part = *op.device;
  const const_device_view& in = part.source[0];
  const device_view& out = part.target[0];
  const auto members = static_cast<std::size_t>(size);
  const bool has_root =
      op.kind == operation_kind::broadcast || op.kind == operation_kind::reduce ||
      op.kind == operation_kind::gather || op.kind == operation_kind::scatter;
  if (has_root && (part.root < 0 || part.root >= size)) {
    return fmt::format("there is no root {} in a world of {} members", part.root, size);
  }
  const bool is_root = part.root == self;
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
                           size);
      }
      if (size > 1 && in.data() == out.data() && !in.empty()) {
        return "all_to_all is not possible in place";
      }
      break;
    default:
      break;
  }
  if (uses_in && uses_out && in.type() != out.type()) {
    return fmt::format("in has elements of {}, but out of {}", name_of(in.type()),
                       name_of(out.type()));
  }
  if ((uses_in && in.count() != wanted.in) || (uses_out && out.count() != wanted.out)) {
    return fmt::format("in has {} elements and out {}; {} in and {} out are needed",
                       in.count(), out.count(), wanted.in, wanted.out);
  }
  return {};
}

}  // namespace

collective_terms terms_of(const operation& op, rank_t size) noexcept {
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
      terms.count = in.count() / static_cast<std::size_t>(size);
      break;
    default:
      terms.type = in.type();
      terms.count = in.count();
  }
  return terms;
}

std::string validate(const operation& op, rank_t self, rank_t size) {
  if (op.kind == operation_kind::native || changes_memory(op.kind)) return {};
  const device_part& part = *op.device;
  if (part.unmatched && op.peer == no_rank && !is_collective(op.kind)) {
    return "an unmatched receive must name its sender, since it is not matched with a "
           "message";
  }
  if (part.unmatched && op.head_bytes > 0) {
    return "an unmatched send can carry no head: only its payload travels";
  }
  return is_collective(op.kind) ? validate_counts(op, self, size) : std::string();
}

// Each member comes to the same answer, so that all refuse or none: launched, NCCL would
// refuse it, and that breaks the world.
std::string missing_for(const operation& op, rank_t size, int capability) {
  if (changes_memory(op.kind) && !nccl_library::get().ncclCommSuspend) {
    return "the loaded NCCL cannot give back a communicator's memory: NCCL 2.29.7 or "
           "later is needed";
  }
  if (!is_collective(op.kind) || changes_memory(op.kind)) return {};
  const collective_terms terms = terms_of(op, size);
  const bool is_float8 =
      terms.type == dtype::float8_e4m3 || terms.type == dtype::float8_e5m2;
  if (!is_float8 || !terms.reduces()) return {};
  if (const int version = nccl_library::get().version; version < float8_version) {
    return fmt::format("NCCL {} cannot compute with {}: NCCL 2.24 or later is needed",
                       version_text(version), name_of(terms.type));
  }
  if (capability < float8_capability) {
    return fmt::format(
        "NCCL can compute with {} only on GPUs of compute capability 9.0 or later, and "
        "one GPU of this world has {}.{}",
        name_of(terms.type), capability / 10, capability % 10);
  }
  return {};
}

}  // namespace manyworlds::inline v0::detail::nccl
