// One step of decoding on two GPUs: from a token to the next, as a CUDA graph that holds
// the collectives of a world.
#pragma once

#include <algorithm>
#include <manyworlds/gpu.hpp>
#include <manyworlds/mw.hpp>
#include <utility>
#include <vector>

#include "cuda_calls.hpp"

/// Tokens are below this; a negative one ends the loop at both members.
constexpr int vocabulary = 97;
constexpr float over = -1;
constexpr int layers = 4;
constexpr std::size_t width = 4096;

/// Returns what a step makes of a token. Each layer's sum doubles the token; the two
/// members' weights, 1 and 2, become 3 in the first layer and are doubled in the others.
constexpr int next_token(int token) {
  return (token * (1 << layers) + 3 * (1 << (layers - 1))) % vocabulary;
}

/// Holds the memory of the steps. It outlives the worlds: their graphs have its addresses
/// in them.
class step_memory {
 public:
  explicit step_memory(int device)
      : stream_(device),
        pool_(device),
        pinned_({.device = device}),
        weights_(pool_, width, stream_),
        state_(pool_, width, stream_),
        in_(pinned_, 1),
        out_(pinned_, width) {}

  mw::task<void> fill(float weight) {
    const std::vector<float> values(width, weight);
    co_await mw::copy(weights_, values);
    co_await mw::copy(state_, values);
  }

  /// Enqueues a step, as it is captured. In a model the layers' kernels stand in
  /// between.
  void enqueue(const cuda_calls& cuda, ncclComm_t on, cudaStream_t stream) {
    float* const state = state_.data();
    const std::size_t rest = (width - 1) * sizeof(float);
    cuda.check(cuda.copy(state, in_.data(), sizeof(float), cudaMemcpyDefault, stream));
    cuda.check(cuda.copy(state + 1, weights_.data(), rest, cudaMemcpyDefault, stream));
    cuda.check(cuda.broadcast(state, state, 1, ncclFloat, 0, on, stream));
    // Both members have the token now: the first layer's sum counts it twice.
    for (int layer = 0; layer < layers; ++layer) {
      cuda.check(cuda.all_reduce(state, state, width, ncclFloat, ncclSum, on, stream));
    }
    cuda.check(
        cuda.copy(out_.data(), state, width * sizeof(float), cudaMemcpyDefault, stream));
  }

  void set_token(float token) { in_[0] = token; }
  /// Returns the token that rank 0 put in.
  [[nodiscard]] float token() const { return out_[0] / (1 << layers); }
  /// Returns whether the sums of the weights are what they should be.
  [[nodiscard]] bool is_right() const {
    return std::all_of(out_.begin() + 1, out_.end(),
                       [](float each) { return each == 3 * (1 << (layers - 1)); });
  }

 private:
  mw::owned_stream stream_;
  mw::device_pool pool_;
  mw::pinned_pool pinned_;
  mw::device_buffer<float> weights_, state_;
  mw::pinned_buffer<float> in_, out_;
};

/// Holds a step of one world as a graph. NCCL frees no communicator that a graph still
/// holds, so the world drops the graph when it breaks or is left.
class step_graph {
 public:
  explicit step_graph(const cuda_calls& cuda) : cuda_(cuda) {}
  step_graph(const step_graph&) = delete;
  step_graph& operator=(const step_graph&) = delete;
  ~step_graph() { drop(); }

  /// Called by `native`, where the world's operations are launched.
  void capture(step_memory& memory, ncclComm_t on, cudaStream_t stream) {
    cuda_.check(cuda_.begin_capture(stream, cudaStreamCaptureModeThreadLocal));
    try {
      memory.enqueue(cuda_, on, stream);
    } catch (...) {
      // `native` may not leave a capture open.
      (void)cuda_.end_capture(stream, &graph_);
      throw;
    }
    cuda_.check(cuda_.end_capture(stream, &graph_));
    cuda_.check(cuda_.instantiate(&program_, graph_, 0));
  }
  void launch(cudaStream_t stream) const { cuda_.check(cuda_.launch(program_, stream)); }
  /// Drops the graph. Idempotent. Launched work is not cut short by it.
  void drop() noexcept {
    if (cudaGraphExec_t program = std::exchange(program_, nullptr))
      (void)cuda_.destroy_program(program);
    if (cudaGraph_t graph = std::exchange(graph_, nullptr))
      (void)cuda_.destroy_graph(graph);
  }

 private:
  const cuda_calls& cuda_;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t program_ = nullptr;
};
