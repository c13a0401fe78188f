// Work on its way to a stream: onto its queue, or into the graph it is captured into.
#pragma once

#include <driver_types.h>

#include "machine.hpp"

namespace emulated {

// When it fails, the work's release is not called.
cudaError_t submit(const stream_ptr& to, const node_ptr& work);

// The same for what moves or makes data on the device: it can be the one that breaks it.
cudaError_t submit_kernel(const stream_ptr& to, const node_ptr& work);

// Before a kernel's first launch on the device: its module is loaded then, which may wait
// for all kernels that run ("Lazy Loading" of the CUDA programming guide, "Potential
// Hazards").
cudaError_t load_kernel(device& on, const void* kernel);

bool is_legacy(const stream& asked);

// A call that means nothing to a stream that is captured, or that a capture blocks.
cudaError_t refuse_if_captured(const stream_ptr& asked);

// A mark behind all of the stream's work. The stream is not captured.
moment_ptr mark(const stream_ptr& on);

// What a question after a stream's work, or after a mark in it, says of the process's
// error: all of them show it, or only those of streams that had work when it came
// (EMULATED_CUDA_STICKY_SHOWN).
cudaError_t shown_by(const stream& asked);
cudaError_t shown_by(const moment_ptr& asked);

// The host waits for the mark. When the process breaks meanwhile it is woken, with the
// error.
cudaError_t wait_on_host(const moment_ptr& mark);

cudaError_t wait_for_device(device& waited_for);

}  // namespace emulated
