// Manyworlds, the core: tasks, memory, stores, runtimes and worlds. Beside it stand
// `serve.hpp` (parts of a server), `gpu.hpp` (streams and memory of CUDA), `testing.hpp`
// (a simulation of machines and networks). `mw.hpp` is the core and `serve.hpp`.
#pragma once

// Vocabulary
#include "manyworlds/address.hpp"
#include "manyworlds/algorithms.hpp"
#include "manyworlds/failure.hpp"
#include "manyworlds/inline_text.hpp"
#include "manyworlds/process_address.hpp"
#include "manyworlds/source_position.hpp"
#include "manyworlds/time.hpp"
#include "manyworlds/version.hpp"
#include "manyworlds/world/result.hpp"

// Coroutines: tasks, scopes, cancellation, channels
#include "manyworlds/coro/awaitable.hpp"
#include "manyworlds/coro/channel.hpp"
#include "manyworlds/coro/continuation.hpp"
#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/executor.hpp"
#include "manyworlds/coro/giving_up.hpp"
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

// Files and signals, awaited; addresses; the machine that a runtime runs on
#include "manyworlds/io/environment.hpp"
#include "manyworlds/io/file_reader.hpp"
#include "manyworlds/io/signals.hpp"
#include "manyworlds/io/socket_address.hpp"

// Memory: element types, views of the caller's buffers, tensors
#include "manyworlds/memory/buffer_view.hpp"
#include "manyworlds/memory/dlpack.hpp"
#include "manyworlds/memory/dtype.hpp"
#include "manyworlds/memory/gather_list.hpp"
#include "manyworlds/memory/reduction.hpp"
#include "manyworlds/memory/shape.hpp"
#include "manyworlds/memory/shared_buffer.hpp"
#include "manyworlds/memory/small_float.hpp"
#include "manyworlds/memory/tensor.hpp"

// Rendezvous: stores through which members find each other
#include "manyworlds/store/file_store.hpp"
#include "manyworlds/store/memory_store.hpp"
#include "manyworlds/store/prefix_store.hpp"
#include "manyworlds/store/run_on.hpp"
#include "manyworlds/store/store.hpp"
#include "manyworlds/store/store_error.hpp"
#include "manyworlds/store/tcp_store.hpp"

// Worlds, and the runtime they belong to
#include "manyworlds/observe/history.hpp"
#include "manyworlds/observe/log.hpp"
#include "manyworlds/observe/turn_times.hpp"
#include "manyworlds/world/collective_calls.hpp"
#include "manyworlds/world/device_calls.hpp"
#include "manyworlds/world/message_info.hpp"
#include "manyworlds/world/options.hpp"
#include "manyworlds/world/outcome.hpp"
#include "manyworlds/world/runtime.hpp"
#include "manyworlds/world/runtime_options.hpp"
#include "manyworlds/world/started.hpp"
#include "manyworlds/world/tensor_calls.hpp"
#include "manyworlds/world/view.hpp"
#include "manyworlds/world/world.hpp"
#include "manyworlds/world/world_event.hpp"
#include "manyworlds/world/world_operation.hpp"
#include "manyworlds/world/world_state.hpp"
