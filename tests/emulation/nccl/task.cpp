#include "task.hpp"

#include "element.hpp"

namespace nccl_emulation {

std::size_t task::bytes() const { return count * size_of(type); }

void* task::written(const communicator& c) const {
  if (what == call::send) return nullptr;
  if (what == call::reduce && c.rank != root) return nullptr;
  if (what == call::broadcast && c.rank == root && to == from) return nullptr;
  return to;
}

std::size_t task::written_bytes(const communicator& c) const {
  return what == call::all_gather ? bytes() * static_cast<std::size_t>(c.count) : bytes();
}

}  // namespace nccl_emulation
