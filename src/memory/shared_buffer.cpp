#include "manyworlds/memory/shared_buffer.hpp"

#include <limits>
#include <new>
#include <utility>

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

shared_buffer detail::allocate_from(std::shared_ptr<pool_memory> pool,
                                    std::size_t bytes) noexcept {
  std::byte* const first = pool->allocate(bytes);
  if (!first) return {};
  MW_ASSERT(pool->contains(first, bytes), "a buffer lies within its pool");
  return access::make<shared_buffer>(std::move(pool), std::span(first, bytes));
}

shared_pool::shared_pool(std::shared_ptr<pool_registry> known_to, std::size_t bytes) {
  if (!known_to || bytes == 0) {
    throw std::invalid_argument(
        "a shared pool needs at least one byte and the pools() of a runtime");
  }
  if (bytes > std::numeric_limits<std::size_t>::max() / 4) throw std::bad_alloc();
  memory_ = std::make_shared<pool_memory>(known_to, bytes);
  if (memory_->descriptor() >= 0) known_to->add(memory_);
}

shared_buffer shared_pool::allocate(std::size_t bytes) {
  shared_buffer found = allocate_from(memory_, bytes);
  if (found.size() < bytes) throw std::bad_alloc();
  return found;
}

}  // namespace manyworlds::inline v0
