#include "spmd/thread_source.hpp"

#include <utility>

#include "exception_text.hpp"
#include "manyworlds/coro/offload.hpp"
#include "manyworlds/detail/notice.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0::detail {

/// What such runtimes have from the controller's: how it waits, where it logs, and what
/// it proves to its peers.
static runtime_options options_of_workers(runtime& controller) {
  const runtime_options& given = access::core(controller).options();
  runtime_options options;
  options.thread_name = "mw-worker";
  options.spin = given.spin;
  options.engine = given.engine;
  options.secret = given.secret;
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
               const function_table& functions, worker_seat seat, local_places& locals)
      : runtime_(options),
        running_(runtime_.start(
            run(runtime_, meeting, functions, std::move(seat), locals, end_))) {}

  /// How it ended, for those that wait for that, also beyond this object.
  struct ending {
    notice told;
    std::string text;  ///< before it is told; empty if in order
  };
  [[nodiscard]] const std::shared_ptr<ending>& end() const noexcept { return end_; }

 private:
  static task<void> run(runtime& rt, store& meeting, const function_table& functions,
                        worker_seat seat, local_places& locals,
                        std::shared_ptr<ending> end) {
    // Also when it is cancelled with its runtime.
    const struct teller {
      ending& at;
      ~teller() { at.told.set(); }
    } at_last{*end};
    try {
      worker_loop loop(rt, meeting, functions, std::move(seat), &locals);
      co_await loop.run();
    } catch (...) {
      end->text = handled_exception_text();
    }
  }

  std::shared_ptr<ending> end_ = std::make_shared<ending>();
  runtime runtime_;
  started<void> running_;
};

thread_source::thread_source(runtime& controller, const function_table& functions,
                             const session_options& limits, store* meeting)
    : options_(options_of_workers(controller)),
      functions_(functions),
      limits_(limits),
      meeting_(meeting != nullptr ? meeting : &own_meeting_),
      maker_("mw-session") {}

thread_source::~thread_source() {
  // The session has ended them. After a stop of its runtime they end here.
  workers_.clear();
}

task<void> thread_source::start(int worker, std::uint64_t incarnation) {
  std::shared_ptr<worker_place> made;
  co_await offload(maker_, [&] {
    made = std::make_shared<worker_place>(
        options_, *meeting_, functions_,
        worker_seat{session_, worker, count_, incarnation, limits_, worker}, locals_);
  });
  workers_[worker] = std::move(made);
}

task<std::string> thread_source::ended(int worker) {
  const auto at = workers_.find(worker);
  if (at == workers_.end()) co_return std::string();
  const std::shared_ptr<worker_place::ending> end = at->second->end();
  co_await end->told.wait();
  co_return end->text;
}

task<void> thread_source::end(int worker, duration) {
  const auto at = workers_.find(worker);
  if (at == workers_.end()) co_return;
  std::shared_ptr<worker_place> place = std::move(at->second);
  workers_.erase(at);
  co_await offload(maker_, [&] { place = nullptr; });
}

}  // namespace manyworlds::inline v0::detail
