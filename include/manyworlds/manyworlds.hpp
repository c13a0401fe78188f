// The map of the public interface. Include this, or only what you need of it.
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

// Memory: element types and views of the caller's buffers
#include "manyworlds/memory/buffer_view.hpp"
#include "manyworlds/memory/dlpack.hpp"
#include "manyworlds/memory/dtype.hpp"
#include "manyworlds/memory/gather_list.hpp"
#include "manyworlds/memory/shared_buffer.hpp"
#include "manyworlds/memory/view_list.hpp"

// Rendezvous: stores through which members find each other
#include "manyworlds/store/memory_store.hpp"
#include "manyworlds/store/prefix_store.hpp"
#include "manyworlds/store/tcp_store.hpp"
#include "manyworlds/store/tcp_store_server.hpp"

// Worlds, and the runtime they belong to
#include "manyworlds/world/outcome.hpp"
#include "manyworlds/world/runtime.hpp"
#include "manyworlds/world/world.hpp"

// Serving: supervised worlds, hosted stores
#include "manyworlds/serve/hosted_store.hpp"
#include "manyworlds/serve/keep.hpp"

/// The short name that examples use.
namespace mw = manyworlds;
