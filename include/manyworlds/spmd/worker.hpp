// Worker: what a remote function sees of the worker that runs it, and of its mesh.
#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>

#include "manyworlds/address.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/detail/access.hpp"
#include "manyworlds/memory/device_view.hpp"
#include "manyworlds/memory/tensor.hpp"

namespace manyworlds::inline v0 {

class runtime;
class scope;
class world;

namespace detail {

class local_places;
class worker_device;
class worker_plugins;

/// What stands behind a `worker` during one call. Lifetime: that of the call.
struct worker_facts {
  int id = 0;
  std::uint64_t incarnation = 1;
  std::uint64_t call = 0;
  rank_t rank = 0;
  rank_t size = 1;
  manyworlds::world* world = nullptr;
  manyworlds::runtime* runtime = nullptr;
  manyworlds::scope* beside = nullptr;
  worker_plugins* plugins = nullptr;
  /// Null without one.
  std::shared_ptr<worker_device> device = nullptr;
  memory_place place = {};
  device_stream stream = {};
  int cpu = -1;
  std::stop_token stop = {};
  /// Null unless it is a thread of the controller's process.
  local_places* locals = nullptr;
};

[[noreturn]] void refuse_without_mesh();

}  // namespace detail

/// The worker that runs a remote function, as the first argument of that function.
///
///     mw::task<mw::tensor> mlp(mw::worker& me, const layer& w, const mw::tensor& x) {
///       mw::tensor y = w.slice(x, me.rank(), me.size());
///       co_await me.world().all_reduce(y, mw::sum);
///       co_return y;
///     }
///
/// Thread: that on which the function runs. Lifetime: until the function has returned.
class worker {
 public:
  worker(const worker&) = delete;
  worker& operator=(const worker&) = delete;
  ~worker() = default;

  /// Returns its number in the session. It stays when the worker is replaced.
  [[nodiscard]] int id() const noexcept { return facts_.id; }
  /// Returns which process or thread has this number: 1 for the first.
  [[nodiscard]] std::uint64_t incarnation() const noexcept { return facts_.incarnation; }
  /// Returns its number in the mesh of the call; in a function that was declared `alone`
  /// its id, which is the same when it is run again.
  [[nodiscard]] rank_t rank() const noexcept { return facts_.rank; }
  /// Returns how many workers the mesh of the call has; in a function that was declared
  /// `alone` those of the session.
  [[nodiscard]] rank_t size() const noexcept { return facts_.size; }
  /// Returns the id of the call, as errors name it.
  [[nodiscard]] std::uint64_t call() const noexcept { return facts_.call; }
  /// Returns the world of the mesh of the call, to exchange data with its other workers.
  /// Errors: world_error (`invalid_argument`) in a function that was declared `alone`.
  [[nodiscard]] class world& world() const {
    if (facts_.world == nullptr) detail::refuse_without_mesh();
    return *facts_.world;
  }
  [[nodiscard]] class runtime& runtime() const noexcept { return *facts_.runtime; }
  /// Returns where its tensors lie: the CUDA device that was given to it, or the host. A
  /// function that calls CUDA selects that device itself.
  [[nodiscard]] memory_place place() const noexcept { return facts_.place; }
  /// Returns the stream of its device; none without one. The memory of its tensors is
  /// taken and given back in the order of this stream, and operations on them come after
  /// what is on it.
  [[nodiscard]] device_stream stream() const noexcept { return facts_.stream; }
  /// Returns the CPU that it is bound to; -1 if it may run on several.
  [[nodiscard]] int cpu() const noexcept { return facts_.cpu; }
  /// Makes a tensor where its tensors lie. Contents are not set. Errors: device_error;
  /// those of `tensor`.
  [[nodiscard]] tensor new_tensor(const shape& of, dtype type) const;
  /// Copies a tensor, which may lie anywhere, to where its tensors lie. Lifetime: the
  /// tensor outlives the await. Errors: device_error; std::logic_error in a
  /// `blocking` function, unless both lie in host memory.
  [[nodiscard]] task<tensor> copy_of(const tensor& from) const;
  /// Copies a tensor, which may lie anywhere, into host memory. Lifetime: the tensor
  /// outlives the await. Errors: those of `copy_of`.
  [[nodiscard]] static task<tensor> host_copy_of(const tensor& from);
  /// Returns a token that is triggered when the call is given up, for plain functions. A
  /// task is cancelled as well.
  [[nodiscard]] std::stop_token stop_token() const noexcept { return facts_.stop; }
  /// Returns the scope of what goes on beside later calls. It is cancelled when the
  /// worker ends.
  [[nodiscard]] scope& beside() const noexcept { return *facts_.beside; }

 private:
  friend struct detail::access;
  explicit worker(const detail::worker_facts& facts) noexcept : facts_(facts) {}
  /// What `detail::access::core` gives.
  [[nodiscard]] const detail::worker_facts& existing_core() const noexcept {
    return facts_;
  }

  const detail::worker_facts& facts_;
};

}  // namespace manyworlds::inline v0
