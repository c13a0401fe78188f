// Captures and graphs.
#include <cuda_runtime_api.h>

#include <utility>

#include "entry.hpp"
#include "submit.hpp"

using namespace emulated;

namespace {

void run_nodes(graph_program& program) {
  // A graph captured from launches of this one may run beside it.
  std::lock_guard one_at_a_time(program.running);
  for (const node_ptr& each : program.nodes)
    if (machine::here().broken() == cudaSuccess) each->run();
}

cudaGraph_t handle_of(const graph_ptr& graph) {
  return static_cast<cudaGraph_t>(static_cast<void*>(graph.get()));
}

}  // namespace

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return enter_stream(ordinary, stream, [&](const stream_ptr& origin) {
    if (mode < cudaStreamCaptureModeGlobal || mode > cudaStreamCaptureModeRelaxed)
      return cudaErrorInvalidValue;
    if (is_legacy(*origin)) return cudaErrorStreamCaptureUnsupported;
    return machine::here().capturing.begin(origin, mode);
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return enter_stream(ordinary, stream, [&](const stream_ptr& origin) {
    if (graph == nullptr) return cudaErrorInvalidValue;
    *graph = nullptr;
    graph_ptr recorded;
    const auto result = machine::here().capturing.end(origin, recorded);
    if (result != cudaSuccess) return result;
    *graph = handle_of(recorded);
    machine::here().graphs.add(std::move(recorded));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges,
                                     size_t* dependency_count) {
  return enter_stream(ordinary, stream, [&](const stream_ptr& asked) {
    if (status == nullptr) return cudaErrorInvalidValue;
    captures& all = machine::here().capturing;
    if (is_legacy(*asked) && all.legacy_is_blocked(asked->device))
      return cudaErrorStreamCaptureImplicit;
    const auto state = all.state_of(*asked);
    *status = state.status;
    if (state.status != cudaStreamCaptureStatusActive) return cudaSuccess;
    if (id != nullptr) *id = state.id;
    if (graph != nullptr) *graph = handle_of(state.recorded);
    if (dependencies != nullptr) *dependencies = nullptr;
    if (edges != nullptr) *edges = nullptr;
    if (dependency_count != nullptr) *dependency_count = 0;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return cudaStreamGetCaptureInfo(stream, status, nullptr, nullptr, nullptr, nullptr,
                                  nullptr);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return enter(lockless, [&] {
    if (mode == nullptr || *mode < cudaStreamCaptureModeGlobal ||
        *mode > cudaStreamCaptureModeRelaxed)
      return cudaErrorInvalidValue;
    std::swap(*mode, mode_of_this_thread());
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* program, cudaGraph_t handle,
                                 unsigned long long) {
  return enter(ordinary, [&] {
    const graph_ptr graph = machine::here().graphs.find(handle);
    if (program == nullptr || !graph) return cudaErrorInvalidValue;
    auto made = std::make_shared<graph_program>();
    made->nodes = graph->nodes;
    *program =
        static_cast<cudaGraphExec_t>(machine::here().programs.add(std::move(made)));
    return cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream) {
  return enter_stream(ordinary, stream, [&](const stream_ptr& on) -> cudaError_t {
    const auto program = machine::here().programs.find(handle);
    if (!program) return cudaErrorInvalidValue;
    const auto run = std::make_shared<node>([program] { run_nodes(*program); });
    captures& all = machine::here().capturing;
    if (all.state_of(*on).status != cudaStreamCaptureStatusNone) return submit(on, run);
    std::lock_guard hold(program->launching);
    auto result = cudaSuccess;
    if (const auto before = program->last_launch; before && !before->has_come())
      result = submit(on, std::make_shared<node>([before] { before->wait(); }));
    if (result == cudaSuccess) result = submit(on, run);
    if (result == cudaSuccess) program->last_launch = mark(on);
    return result;
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t program) {
  return enter(freeing, [&] {
    return machine::here().programs.remove(program) ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return enter(freeing, [&] {
    return machine::here().graphs.remove(graph) ? cudaSuccess : cudaErrorInvalidValue;
  });
}
