#include "nccl/pinned_words.hpp"

#include "nccl/cuda_library.hpp"

namespace manyworlds::inline v0::detail::nccl {

namespace {

constexpr std::size_t page_bytes = 4096;
constexpr std::size_t line_bytes = 64;

}  // namespace

pinned_word pinned_words::take() {
  const cuda_library& cuda = cuda_library::get();
  const std::lock_guard lock(mutex_);
  if (unused_.empty()) {
    void* page = nullptr;
    void* on_device = nullptr;
    if (cuda.cudaHostAlloc(&page, page_bytes, cudaHostAllocMapped) != cudaSuccess ||
        cuda.cudaHostGetDevicePointer(&on_device, page, 0) != cudaSuccess) {
      (void)cuda.cudaGetLastError();
      if (page) (void)cuda.cudaFreeHost(page);
      return {};
    }
    pages_.push_back(page);
    for (std::size_t at = 0; at < page_bytes; at += line_bytes) {
      unused_.push_back({reinterpret_cast<std::uint32_t*>(static_cast<char*>(page) + at),
                         reinterpret_cast<unsigned long long>(on_device) + at});
    }
  }
  const pinned_word word = unused_.back();
  unused_.pop_back();
  ++taken_;
  word.write(0);
  return word;
}

void pinned_words::give_back(pinned_word word) noexcept {
  const std::lock_guard lock(mutex_);
  // It has room: it came from there.
  unused_.push_back(word);
  --taken_;
}

void pinned_words::free() noexcept {
  const std::lock_guard lock(mutex_);
  if (taken_ != 0) return;
  unused_.clear();
  for (void* page : pages_) (void)cuda_library::get().cudaFreeHost(page);
  pages_.clear();
}

}  // namespace manyworlds::inline v0::detail::nccl
