#include "manyworlds/nccl/pinned_pool.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "nccl/cuda_error.hpp"
#include "nccl/pinned_state.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

namespace detail::nccl {

namespace {

constexpr std::size_t smallest_block = 256;
constexpr std::size_t smallest_slab = 4096;

/// Four sizes between two powers of two; each a multiple of a line.
std::size_t block_for(std::size_t bytes) noexcept {
  if (bytes <= smallest_block) return smallest_block;
  const std::size_t step = std::bit_ceil(bytes) / 8;
  return (bytes + step - 1) / step * step;
}

const pinned_pool_options& checked(const pinned_pool_options& options) {
  if (!std::has_single_bit(options.slab) || options.slab < smallest_slab ||
      options.slab > options.limit) {
    throw std::invalid_argument(fmt::format(
        "pinned_pool: a slab of {} bytes is no power of two from {} to the limit of {}",
        options.slab, smallest_slab, options.limit));
  }
  return options;
}

}  // namespace

pinned_state::pinned_state(const pinned_pool_options& options)
    : cuda_(cuda_on(options.device,
                    fmt::format("a pinned_pool on device {}", options.device))),
      options_(checked(options)) {}

pinned_state::~pinned_state() { return_unused(); }

pinned_block pinned_state::allocate(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  // Which throws: rounded up it might be small.
  if (bytes > options_.limit) (void)ask_cuda(bytes);
  const std::size_t block = block_for(bytes);
  pinned_slab& slab = slab_with_room(by_block_[block], block);
  used_ += block;
  return {slab.take(), &slab};
}

pinned_slab& pinned_state::slab_with_room(slabs& of, std::size_t block) {
  const auto found = std::find_if(of.begin(), of.end(),
                                  [](const auto& slab) { return !slab.is_full(); });
  if (found != of.end()) return *found;
  const std::size_t blocks = std::max<std::size_t>(options_.slab / block, 1);
  std::byte* base = ask_cuda(block * blocks);
  try {
    of.emplace_front(base, block, blocks);
  } catch (...) {
    (void)cuda_.cudaFreeHost(base);
    throw;
  }
  held_ += of.front().size();
  return of.front();
}

std::byte* pinned_state::ask_cuda(std::size_t bytes) {
  const auto asked = [&] { return fmt::format("{} bytes of pinned memory", bytes); };
  const auto fits = [&] { return bytes <= options_.limit - held_; };
  if (!fits()) return_unused();
  if (!fits()) {
    throw device_error(
        fmt::format("{}: the pool has {} of its {} bytes, {} of them in "
                    "use: raise pinned_pool_options::limit",
                    asked(), held_, options_.limit, used_));
  }
  const device_scope here(options_.device);
  void* base = nullptr;
  if (const auto error = cuda_.cudaHostAlloc(&base, bytes, cudaHostAllocPortable);
      error != cudaSuccess) {
    refuse(asked(), error);
  }
  return static_cast<std::byte*>(base);
}

void pinned_state::free(pinned_block block) noexcept {
  const std::lock_guard lock(mutex_);
  used_ -= block.slab->block();
  block.slab->give_back(block.first);
}

void pinned_state::return_unused() noexcept {
  const device_scope here(options_.device);
  for (auto& [block, of] : by_block_) {
    std::erase_if(of, [this](const pinned_slab& slab) {
      if (!slab.is_unused()) return false;
      held_ -= slab.size();
      (void)cuda_.cudaFreeHost(slab.base());
      return true;
    });
  }
}

void pinned_state::trim() noexcept {
  const std::lock_guard lock(mutex_);
  return_unused();
}

std::size_t pinned_state::held() const noexcept {
  const std::lock_guard lock(mutex_);
  return held_;
}

std::size_t pinned_state::used() const noexcept {
  const std::lock_guard lock(mutex_);
  return used_;
}

pinned_block allocate(pinned_state& pool, std::size_t bytes) {
  return pool.allocate(bytes);
}

void free(pinned_state& pool, pinned_block block) noexcept { pool.free(block); }

}  // namespace detail::nccl

pinned_pool::pinned_pool(pinned_pool_options options)
    : state_(std::make_shared<nccl::pinned_state>(options)) {}

std::size_t pinned_pool::held() const noexcept { return state_->held(); }
std::size_t pinned_pool::used() const noexcept { return state_->used(); }
void pinned_pool::trim() const noexcept { state_->trim(); }

}  // namespace manyworlds::inline v0
