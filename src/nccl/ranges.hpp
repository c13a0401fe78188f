// Ranges: what GPU worlds do, as a profiler shows it that understands NVTX.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "manyworlds/failure.hpp"
#include "manyworlds/inline_text.hpp"

struct nvtxStringRegistration_st;

namespace manyworlds::inline v0::detail::nccl {

/// Returns whether a tool listens. If none does, or if the library was built without
/// NVTX, all else here returns at once.
[[nodiscard]] bool is_traced() noexcept;

/// Stands for a text that the tool has already, so that a range copies none. It is null
/// without a tool.
using range_name = nvtxStringRegistration_st*;

/// Returns "gpus@1", as logs and dumps call a world.
[[nodiscard]] std::string label_of(const world_name& world, std::uint64_t epoch);

/// Names one world's operations, as "all_reduce gpus@1".
///
/// Thread: the world's reactor.
class range_names {
 public:
  range_names(const world_name& world, std::uint64_t epoch) noexcept
      : world_(world), epoch_(epoch) {}

  /// Returns the name, which the tool is given when it is first asked for.
  [[nodiscard]] range_name of(operation_kind kind) noexcept;
  /// Returns the name of operations that are launched as one: "group gpus@1".
  [[nodiscard]] range_name of_group() noexcept;

 private:
  static constexpr std::size_t kinds = static_cast<std::size_t>(operation_kind::call) + 1;

  [[nodiscard]] range_name known(range_name& name, std::string_view what) noexcept;

  [[maybe_unused]] world_name world_;
  [[maybe_unused]] std::uint64_t epoch_;
  std::array<range_name, kinds> of_kinds_{};
  range_name of_group_ = nullptr;
};

/// Shows an operation from its start to the moment when the stream is done with it. It
/// may begin and end on different threads, and overlap others.
class operation_range {
 public:
  operation_range() noexcept = default;
  operation_range(const operation_range&) = delete;
  operation_range& operator=(const operation_range&) = delete;
  ~operation_range() { end(); }

  /// Precondition: it has not begun, or has ended. A null name begins nothing.
  void begin(range_name name, std::uint64_t bytes) noexcept;
  /// Idempotent.
  void end() noexcept;

 private:
  [[maybe_unused]] std::uint64_t id_ = 0;
  [[maybe_unused]] bool is_open_ = false;
};

/// Shows what the calling thread does while the range lives. By it tools find the kernels
/// that were launched meanwhile.
class thread_range {
 public:
  thread_range(range_name name, std::uint64_t bytes) noexcept;
  explicit thread_range(const char* text) noexcept;
  thread_range(const thread_range&) = delete;
  thread_range& operator=(const thread_range&) = delete;
  ~thread_range();

 private:
  [[maybe_unused]] bool is_open_ = false;
};

/// Tells the tool what has happened just now.
void mark(const char* text) noexcept;
/// Tells the tool what the calling thread, or a stream, is called.
void show_thread(const char* name) noexcept;
void show_stream(cudaStream_t stream, const char* name) noexcept;

}  // namespace manyworlds::inline v0::detail::nccl
