// Pages: a pool of blocks of one size, in host memory or on a GPU, and requests' leases.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <manyworlds/gpu.hpp>
#include <manyworlds/mw.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

inline constexpr std::size_t floats_in_block = 16 * 1024, blocks_in_layer = 6;
inline constexpr std::size_t layers = 12, blocks_in_request = blocks_in_layer * layers;
/// Pages for as many requests at a time as decode asks.
inline constexpr std::size_t at_a_time = 4, pages = at_a_time * blocks_in_request;

/// Returns what a block shall hold.
inline float value_of(std::uint64_t request, std::size_t layer, std::size_t block) {
  return static_cast<float>((request * layers + layer) * blocks_in_layer + block);
}

struct host_pages {
  using view = mw::buffer_view;
  explicit host_pages(int) : memory(pages * floats_in_block) {}
  view at(std::size_t page) {
    return view(memory).slice(page * floats_in_block, floats_in_block);
  }
  /// Marks a free page: nothing may be written to it until it is leased.
  static void mark(view page) {
    auto* const first = static_cast<float*>(page.data());
    first[0] = first[page.count() - 1] = -1;
  }
  static bool is_marked(view page) {
    const auto* first = static_cast<const float*>(page.data());
    return first[0] == -1 && first[page.count() - 1] == -1;
  }
  static mw::task<void> fill(view page, float value) {
    std::fill_n(static_cast<float*>(page.data()), page.count(), value);
    co_return;
  }
  static mw::task<std::vector<float>> read(view page) {
    const auto* first = static_cast<const float*>(page.data());
    co_return std::vector<float>(first, first + page.count());
  }
  std::vector<float> memory;
};

struct gpu_pages {
  using view = mw::device_view;
  explicit gpu_pages(int device)
      : pool(device),
        stream(device),
        pinned({.device = device}),
        memory(pool, pages * floats_in_block, stream) {}
  view at(std::size_t page) {
    return memory.slice(page * floats_in_block, floats_in_block);
  }
  static void mark(view) {}
  static bool is_marked(view) { return true; }
  // Copy by way of pinned memory. From other memory CUDA waits for the stream, on this
  // thread, and the stream may wait for prefill.
  mw::task<void> fill(view page, float value) const {
    mw::pinned_buffer<float> values(pinned, page.count());
    std::fill_n(values.data(), page.count(), value);
    co_await mw::copy(page, values);
  }
  mw::task<std::vector<float>> read(view page) const {
    mw::pinned_buffer<float> values(pinned, page.count());
    co_await mw::copy(values, page);
    co_return std::vector<float>(values.data(), values.data() + page.count());
  }
  mw::device_pool pool;
  mw::owned_stream stream;
  mw::pinned_pool pinned;
  mw::device_buffer<float> memory;
};

/// Hands out pages in no order, so that the blocks of a request are scattered.
template <class Pages>
class kv_pool {
 public:
  /// A request's pages; destroying it returns them.
  class lease {
   public:
    lease(kv_pool& of, std::vector<std::size_t> taken)
        : of_(&of), taken_(std::move(taken)) {}
    lease(lease&& other) noexcept = default;
    ~lease() {
      for (const std::size_t page : taken_) of_->memory_.mark(of_->memory_.at(page));
      of_->free_.insert(of_->free_.end(), taken_.begin(), taken_.end());
      of_->came_back_.set();
    }

    auto layer(std::size_t l) const {
      std::vector<typename Pages::view> blocks;
      for (std::size_t b = 0; b < blocks_in_layer; ++b)
        blocks.push_back(of_->memory_.at(taken_[l * blocks_in_layer + b]));
      return blocks;
    }

    mw::task<void> fill(std::size_t l, std::uint64_t request) const {
      const auto blocks = layer(l);
      for (std::size_t b = 0; b < blocks.size(); ++b)
        co_await of_->memory_.fill(blocks[b], value_of(request, l, b));
    }
    mw::task<bool> holds(std::uint64_t request) const {
      bool is_right = true;
      for (std::size_t l = 0; l < layers; ++l) {
        const auto blocks = layer(l);
        for (std::size_t b = 0; b < blocks.size(); ++b) {
          const std::vector<float> values = co_await of_->memory_.read(blocks[b]);
          const auto right = std::ranges::count(values, value_of(request, l, b));
          is_right = is_right && right == std::ssize(values);
        }
      }
      co_return is_right;
    }

   private:
    kv_pool* of_;
    std::vector<std::size_t> taken_;
  };

  explicit kv_pool(int device) : memory_(device), free_(pages) {
    for (std::size_t i = 0; i < pages; ++i) {
      free_[i] = i;
      memory_.mark(memory_.at(i));
    }
  }
  /// Waits until there are enough pages.
  mw::task<lease> take() {
    while (free_.size() < blocks_in_request) {
      came_back_.reset();
      co_await came_back_;
    }
    std::shuffle(free_.begin(), free_.end(), random_);
    const auto first = free_.end() - blocks_in_request;
    written_ += std::count_if(first, free_.end(), [this](std::size_t page) {
      return !memory_.is_marked(memory_.at(page));
    });
    lease taken(*this, {first, free_.end()});
    free_.erase(first, free_.end());
    co_return taken;
  }
  [[nodiscard]] bool is_right() const { return free_.size() == pages && written_ == 0; }
  [[nodiscard]] std::string state() const {
    return fmt::format("{} of {} pages are back, {} were written while free",
                       free_.size(), pages, written_);
  }

 private:
  Pages memory_;
  std::vector<std::size_t> free_;
  std::ptrdiff_t written_ = 0;
  mw::event came_back_;
  std::mt19937 random_{1};
};

template <class Pages>
using lease = typename kv_pool<Pages>::lease;
