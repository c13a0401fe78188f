// Device launch: what the launching thread does for one operation.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "manyworlds/detail/device_part.hpp"
#include "manyworlds/detail/operation.hpp"
#include "nccl/call_gate.hpp"
#include "nccl/communicator.hpp"
#include "nccl/completion.hpp"
#include "nccl/launch_order.hpp"
#include "nccl/order_message.hpp"
#include "nccl/ranges.hpp"

namespace manyworlds::inline v0::detail::nccl {

/// The reactor fills it; then it is the launching thread's until `is_launched()`. It
/// holds all it needs, since a thread that is stuck in NCCL may come back when the
/// world, and the operation, are long gone.
class device_launch final : public work,
                            public std::enable_shared_from_this<device_launch> {
 public:
  device_launch() noexcept
      : work([](work& w) noexcept { static_cast<device_launch&>(w).run_posted(); }) {}

  operation_kind kind = operation_kind::none;
  rank_t self = no_rank;
  rank_t size = 0;
  rank_t peer = no_rank;
  /// For a matched message, the pieces of the other side; an unmatched one has one per
  /// view.
  bool is_matched = false;
  payload_layout layout;
  std::vector<const_device_view> views;
  int device = 0;
  /// The terms of a collective; its input and output are the views.
  collective_terms terms;
  void (*call)(void* context, ncclComm_t on, cudaStream_t stream) = nullptr;
  void* context = nullptr;
  /// Launched with this one, as one NCCL group.
  std::vector<std::shared_ptr<device_launch>> group;

  /// Tools show the launch by this name, with the bytes of its views.
  range_name name = nullptr;
  std::uint64_t bytes = 0;

  std::uint64_t number = 0;
  /// It is given up when the operation is launched.
  launch_turn turn;
  ncclComm_t on = nullptr;
  cudaStream_t stream = nullptr;
  std::shared_ptr<call_gate> gate;
  std::shared_ptr<completion> completions;

  /// Returns false while the launching thread may still use it. Its `use_count` alone
  /// does not order that thread's last accesses before ours; the acquire in
  /// `is_launched` does.
  [[nodiscard]] bool may_be_reset() const noexcept {
    return !is_posted_ || is_launched();
  }
  /// Makes it ready for another operation.
  void reset() noexcept;
  /// Collects the streams, other than the world's, on which the views' work is ordered.
  void collect_streams();

  /// Posts itself, and keeps itself until it has run.
  void post_to(class launcher& where) noexcept;
  /// Posts itself only to look at the views.
  void post_check_to(class launcher& where) noexcept;
  /// Gives such a look up. Returns false if the thread looks just now; true if it does
  /// not look, or no longer.
  [[nodiscard]] bool give_up_check() noexcept;
  void clear_outcome() noexcept;
  /// Runs here and now.
  void run() noexcept;

  [[nodiscard]] bool is_launched() const noexcept {
    // Acquire: pairs with the release at the end of `run`; the rest is read after it.
    return launched_.load(std::memory_order_acquire);
  }
  [[nodiscard]] enum cause failed_with() const noexcept { return cause_; }
  [[nodiscard]] const std::string& error() const noexcept { return error_; }
  [[nodiscard]] const std::exception_ptr& thrown() const noexcept { return thrown_; }

 private:
  void run_posted() noexcept;
  void launch();
  void note_first() noexcept;
  void check_views();
  [[nodiscard]] bool check_streams();
  template <class Predicate>
  [[nodiscard]] bool all_streams(Predicate is_right) const;
  using ordering = cudaError_t (completion::*)(cudaStream_t);
  [[nodiscard]] bool order(ordering how);
  [[nodiscard]] ncclResult_t call_nccl();
  [[nodiscard]] ncclResult_t point_to_point();
  [[nodiscard]] ncclResult_t collective();
  [[nodiscard]] ncclResult_t parts();
  [[nodiscard]] bool succeeded(cudaError_t result);
  void set_launched() noexcept;
  void refuse(enum cause why, std::string text) {
    cause_ = why;
    error_ = std::move(text);
  }

  bool is_posted_ = false;  ///< touched on the reactor only
  bool only_checks_ = false;
  enum class look : std::uint8_t { waiting, asking, given_up };
  std::atomic<look> look_{look::waiting};
  std::vector<cudaStream_t> streams_;
  enum cause cause_ = cause::none;
  std::string error_;
  std::exception_ptr thrown_;
  std::shared_ptr<device_launch> itself_;
  std::atomic<bool> launched_{false};
};

}  // namespace manyworlds::inline v0::detail::nccl
