#include "spmd/thread_source.hpp"

#include <utility>

#include "exception_text.hpp"
#include "manyworlds/coro/offload.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0::detail {

/// What such runtimes have from the controller's: how it waits and where it logs.
static runtime_options options_of_workers(runtime& controller) {
  const runtime_options& given = access::core(controller).options();
  runtime_options options;
  options.thread_name = "mw-worker";
  options.spin = given.spin;
  options.engine = given.engine;
  options.heartbeat = given.heartbeat;
  options.shared_memory = given.shared_memory;
  options.read_peers = given.read_peers;
  options.mover = given.mover;
  options.algorithms = given.algorithms;
  options.log = given.log;
  options.log_from = given.log_from;
  options.backends = given.backends;
  return options;
}

/// A runtime with one task: the worker's loop.
class thread_source::worker_place {
 public:
  worker_place(const runtime_options& options, store& meeting,
               const function_table& functions, worker_seat seat)
      : runtime_(options),
        running_(
            runtime_.start(run(runtime_, meeting, functions, std::move(seat), said_))) {}

  [[nodiscard]] bool has_ended() const { return running_.is_ready(); }
  /// Says how it ended; empty if in order. Precondition: `has_ended()`.
  [[nodiscard]] std::string how() const { return said_->text; }

 private:
  struct saying {
    std::string text;
  };

  static task<void> run(runtime& rt, store& meeting, const function_table& functions,
                        worker_seat seat, std::shared_ptr<saying> said) {
    try {
      worker_loop loop(rt, meeting, functions, std::move(seat));
      co_await loop.run();
    } catch (...) {
      said->text = handled_exception_text();
    }
  }

  std::shared_ptr<saying> said_ = std::make_shared<saying>();
  runtime runtime_;
  started<void> running_;
};

thread_source::thread_source(runtime& controller, const function_table& functions,
                             const session_options& limits)
    : options_(options_of_workers(controller)),
      functions_(functions),
      limits_(limits),
      maker_("mw-session") {}

thread_source::~thread_source() {
  // The session has ended them. After a stop of its runtime they end here.
  workers_.clear();
}

task<void> thread_source::start(int worker, std::uint64_t incarnation) {
  std::shared_ptr<worker_place> made;
  co_await offload(maker_, [&] {
    made = std::make_shared<worker_place>(
        options_, meeting_, functions_,
        worker_seat{session_, worker, count_, incarnation, limits_});
  });
  workers_[worker] = std::move(made);
}

task<std::string> thread_source::ended(int worker) {
  // A thread does not end by itself but with its control world, which tells it.
  using namespace std::chrono_literals;
  const std::shared_ptr<worker_place> place = workers_[worker];
  while (place && !place->has_ended()) co_await sleep_for(10ms);
  co_return place ? place->how() : std::string();
}

task<std::string> thread_source::end(int worker, duration) {
  std::shared_ptr<worker_place> place = std::exchange(workers_[worker], nullptr);
  if (!place) co_return std::string();
  co_await offload(maker_, [&] { place = nullptr; });
  co_return std::string();
}

}  // namespace manyworlds::inline v0::detail
