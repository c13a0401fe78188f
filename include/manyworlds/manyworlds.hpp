// The map of the public interface. Include this, or only the headers that you need.
#pragma once

// Vocabulary
#include "manyworlds/address.hpp"
#include "manyworlds/failure.hpp"
#include "manyworlds/inline_text.hpp"
#include "manyworlds/result.hpp"
#include "manyworlds/version.hpp"

// Coroutines: tasks, scopes, cancellation, channels
#include "manyworlds/coro/channel.hpp"
#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/offload.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/shield.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/stop.hpp"
#include "manyworlds/coro/sync_wait.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/coro/when_all.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/coro/worker_thread.hpp"

// Signals, awaited
#include "manyworlds/io/signals.hpp"

// Memory: element types and views of the caller's buffers
#include "manyworlds/detail/view_list.hpp"
#include "manyworlds/memory/buffer_view.hpp"
#include "manyworlds/memory/device_list.hpp"
#include "manyworlds/memory/device_view.hpp"
#include "manyworlds/memory/dlpack.hpp"
#include "manyworlds/memory/dlpack_device.hpp"
#include "manyworlds/memory/dtype.hpp"
#include "manyworlds/memory/gather_list.hpp"
#include "manyworlds/memory/shared_buffer.hpp"

// GPUs: memory, streams, waits and copies
#include "manyworlds/nccl/copy.hpp"
#include "manyworlds/nccl/device_buffer.hpp"
#include "manyworlds/nccl/device_count.hpp"
#include "manyworlds/nccl/device_error.hpp"
#include "manyworlds/nccl/device_pool.hpp"
#include "manyworlds/nccl/on.hpp"
#include "manyworlds/nccl/owned_stream.hpp"
#include "manyworlds/nccl/pinned_pool.hpp"

// Rendezvous: stores through which members find each other
#include "manyworlds/store/memory_store.hpp"
#include "manyworlds/store/prefix_store.hpp"
#include "manyworlds/store/tcp_store.hpp"

// Worlds, and the runtime they belong to
#include "manyworlds/world/graph_hold.hpp"
#include "manyworlds/world/outcome.hpp"
#include "manyworlds/world/runtime.hpp"
#include "manyworlds/world/world.hpp"

// Serving: supervised worlds, elastic ones, worlds by name, requests over a changing
// set of them, hosted stores
#include "manyworlds/serve/accept.hpp"
#include "manyworlds/serve/call_server.hpp"
#include "manyworlds/serve/connect.hpp"
#include "manyworlds/serve/dispatcher.hpp"
#include "manyworlds/serve/hosted_store.hpp"
#include "manyworlds/serve/keep.hpp"
#include "manyworlds/serve/reply_stream.hpp"
#include "manyworlds/serve/world_manager.hpp"

/// The short name that examples use.
namespace mw = manyworlds;
