/* What the emulated libcudart exports beside CUDA's own names, for the emulated libnccl.
 */
#ifndef EMULATION_CUDA_STREAM_HOOKS_H
#define EMULATION_CUDA_STREAM_HOOKS_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Runs run(argument) in stream order, on the stream's own worker thread; it may block
 * that thread, which stalls the stream like a kernel that spins. In a stream that is
 * being captured it becomes a node of the graph instead, run at each launch of the graph.
 * release(argument), which may be null, is called once it will not run again, on any
 * thread: after the run, with the graph's last owner, or unrun when the device broke.
 * When the call itself fails, neither is called. */
cudaError_t cudaEmulatedEnqueue(cudaStream_t stream, void (*run)(void*), void* argument,
                                void (*release)(void*));

/* The same, by an owner that cudaEmulatedGraphsHolding can be asked about. */
cudaError_t cudaEmulatedEnqueueKeyed(cudaStream_t stream, const void* key,
                                     void (*run)(void*), void* argument,
                                     void (*release)(void*));

/* 1 while a graph lives that holds work enqueued with this key. */
int cudaEmulatedGraphsHolding(const void* key);

/* Before the first launch of `run` on the device, as asking for a kernel's attributes does:
 * where modules are loaded lazily it waits for all that runs there. */
cudaError_t cudaEmulatedLoadKernel(int device, void (*run)(void*));

/* Called within a kernel that has waited: returns in a slice of this process. */
void cudaEmulatedAwaitSlice(int device);

/* The device is broken as by a kernel's illegal access: what is queued is dropped, and
 * every later call of this process gives the error. */
void cudaEmulatedBreakDevice(int device, cudaError_t error);

/* 1 if a kernel on the device reaches that memory: its own, the host's, and other devices'
 * but for that of pools which it was not admitted to. 1 also where devices reach nothing of
 * each other's, as nothing tries to then. */
int cudaEmulatedReaches(int device, const void* memory);

/* 1 if the process has made the device's context: by cudaSetDevice, by a call of a thread
 * that uses the device, or by the driver's functions. */
int cudaEmulatedHasContext(int device);

#ifdef __cplusplus
}
#endif

#endif
