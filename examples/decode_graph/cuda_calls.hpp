// The CUDA and NCCL functions that the example calls. Your program links libcudart and
// libnccl and calls them by name. This one finds at run time those that the library has
// found, so that it builds, and starts, without them.
#pragma once

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nccl.h>

#include <stdexcept>
#include <string>

/// Signatures are written out, as the headers of CUDA 13.2 and later have templates of
/// some of the names.
struct cuda_calls {
  cuda_calls()
      : cuda_(open("libcudart.so." + std::to_string(CUDART_VERSION / 1000))),
        nccl_(open("libnccl.so.2")) {
    find(cuda_, "cudaStreamBeginCapture", begin_capture);
    find(cuda_, "cudaStreamEndCapture", end_capture);
    find(cuda_, "cudaGraphInstantiate", instantiate);
    find(cuda_, "cudaGraphLaunch", launch);
    find(cuda_, "cudaGraphExecDestroy", destroy_program);
    find(cuda_, "cudaGraphDestroy", destroy_graph);
    find(cuda_, "cudaMemcpyAsync", copy);
    find(cuda_, "cudaGetErrorString", text_of_cuda);
    find(nccl_, "ncclBroadcast", broadcast);
    find(nccl_, "ncclAllReduce", all_reduce);
    find(nccl_, "ncclGetErrorString", text_of_nccl);
  }

  cudaError_t (*begin_capture)(cudaStream_t, cudaStreamCaptureMode) = nullptr;
  cudaError_t (*end_capture)(cudaStream_t, cudaGraph_t*) = nullptr;
  cudaError_t (*instantiate)(cudaGraphExec_t*, cudaGraph_t,
                             unsigned long long flags) = nullptr;
  cudaError_t (*launch)(cudaGraphExec_t, cudaStream_t) = nullptr;
  cudaError_t (*destroy_program)(cudaGraphExec_t) = nullptr;
  cudaError_t (*destroy_graph)(cudaGraph_t) = nullptr;
  cudaError_t (*copy)(void*, const void*, std::size_t, cudaMemcpyKind,
                      cudaStream_t) = nullptr;
  const char* (*text_of_cuda)(cudaError_t) = nullptr;
  ncclResult_t (*broadcast)(const void*, void*, std::size_t, ncclDataType_t, int root,
                            ncclComm_t, cudaStream_t) = nullptr;
  ncclResult_t (*all_reduce)(const void*, void*, std::size_t, ncclDataType_t, ncclRedOp_t,
                             ncclComm_t, cudaStream_t) = nullptr;
  const char* (*text_of_nccl)(ncclResult_t) = nullptr;

  void check(cudaError_t result) const {
    if (result != cudaSuccess) throw std::runtime_error(text_of_cuda(result));
  }
  void check(ncclResult_t result) const {
    if (result != ncclSuccess) throw std::runtime_error(text_of_nccl(result));
  }

 private:
  static void* open(const std::string& soname) {
    void* const library = ::dlopen(soname.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) throw std::runtime_error(::dlerror());
    return library;
  }
  template <class Function>
  static void find(void* library, const char* name, Function& into) {
    into = reinterpret_cast<Function>(::dlsym(library, name));
    if (!into) throw std::runtime_error(std::string("there is no ") + name);
  }

  void* cuda_;
  void* nccl_;
};
