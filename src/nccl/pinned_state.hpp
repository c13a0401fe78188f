// Pinned state: the slabs behind a pinned pool and its buffers.
#pragma once

#include <list>
#include <map>
#include <mutex>

#include "manyworlds/nccl/pinned_pool.hpp"
#include "nccl/cuda_library.hpp"
#include "nccl/pinned_slab.hpp"

namespace manyworlds::inline v0::detail::nccl {

class pinned_state {
 public:
  explicit pinned_state(const pinned_pool_options& options);
  pinned_state(const pinned_state&) = delete;
  pinned_state& operator=(const pinned_state&) = delete;
  ~pinned_state();

  [[nodiscard]] pinned_block allocate(std::size_t bytes);
  void free(pinned_block block) noexcept;
  void trim() noexcept;
  [[nodiscard]] std::size_t held() const noexcept;
  [[nodiscard]] std::size_t used() const noexcept;

 private:
  /// The addresses of slabs are the buffers'.
  using slabs = std::list<pinned_slab>;

  [[nodiscard]] pinned_slab& slab_with_room(slabs& of, std::size_t block);
  [[nodiscard]] std::byte* ask_cuda(std::size_t bytes);
  void return_unused() noexcept;

  const cuda_library& cuda_;
  const pinned_pool_options options_;
  mutable std::mutex mutex_;
  std::map<std::size_t, slabs> by_block_;
  std::size_t held_ = 0;
  std::size_t used_ = 0;
};

}  // namespace manyworlds::inline v0::detail::nccl
