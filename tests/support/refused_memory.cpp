#include "support/refused_memory.hpp"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace manyworlds::testing {

namespace {

constexpr int refuses_none = -1;
/// The number of allocations before the one that is refused.
thread_local int left = refuses_none;

}  // namespace

refused_memory::refused_memory(int before) noexcept { left = before; }
refused_memory::~refused_memory() { left = refuses_none; }
int refused_memory::left_before() noexcept { return left; }
bool refused_memory::was_asked() noexcept { return left == refuses_none; }

}  // namespace manyworlds::testing

// The standard's other forms for ordinary alignments call these.
void* operator new(std::size_t size) {
  using manyworlds::testing::left;
  using manyworlds::testing::refuses_none;
  if (left != refuses_none && left-- == 0) throw std::bad_alloc();
  if (void* const memory = std::malloc(size > 0 ? size : 1)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
