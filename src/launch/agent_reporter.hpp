// Agent reporter: a worker's end of the connection to the agent that has started it.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "io/descriptor.hpp"
#include "launch/worker_report.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/detail/member_work.hpp"
#include "manyworlds/time.hpp"
#include "manyworlds/world/runtime.hpp"
#include "manyworlds/world/world_event.hpp"

namespace manyworlds::inline v0::detail {

class reactor;
class runtime_core;

/// Sends reports, and never waits: what an agent that is slow does not take is dropped.
/// The latest state of worlds and deadlines is then told again with a later beat. A
/// process that was forked from this one sends nothing.
///
/// Thread: any.
class agent_reporter : public std::enable_shared_from_this<agent_reporter> {
 public:
  /// Connects with the first report. `address` is the name of an abstract Unix socket.
  agent_reporter(std::string address, int rank, int incarnation);
  agent_reporter(const agent_reporter&) = delete;
  agent_reporter& operator=(const agent_reporter&) = delete;

  /// Sends beats and the events of worlds, and answers the agent, until the runtime ends
  /// or `detach`. Precondition: the runtime is not stopping. Errors: std::bad_alloc.
  void attach(runtime& rt);
  /// Says that no beats follow. The runtime is not used afterwards.
  void detach() noexcept;

  void note_progress(std::uint64_t step) noexcept;
  [[nodiscard]] std::uint64_t begin_deadline(duration limit, std::string_view what);
  void end_deadline(std::uint64_t number) noexcept;
  /// Asks for a start of all, again and again until the agent has taken it.
  void ask_for_restart(std::string_view why);
  /// Sends one report, or drops it.
  void tell(const worker_report& report) noexcept;

 private:
  struct open_deadline {
    time_point until;
    std::string what;
  };

  /// One stay at a runtime: the number tells it from those before.
  struct stay {
    std::shared_ptr<agent_reporter> self;
    runtime* at = nullptr;
    std::uint64_t number = 0;
  };

  [[nodiscard]] static task<void> report_beats(stay here);
  [[nodiscard]] static task<void> report_worlds(stay here, world_events events);
  [[nodiscard]] static task<void> answer_requests(stay here);
  [[nodiscard]] bool is_forked() const noexcept;
  [[nodiscard]] int connection() noexcept;
  void note_agent_gone() noexcept;
  [[nodiscard]] bool is_at(const stay& here) const noexcept {
    return stay_at_.load(std::memory_order_relaxed) == here.number;
  }
  void write_dump(const stay& here, int to) noexcept;
  void beat(runtime_core& core);
  void note_world(const world_news& news);
  void ask_for_turn(reactor& user) noexcept;
  void note_turn() noexcept;

  // Precondition of these: the mutex is held.
  [[nodiscard]] bool connect() noexcept;
  [[nodiscard]] bool send(const worker_report& report) noexcept;
  /// Sends what may be lost, so that what may not has room.
  [[nodiscard]] bool send_if_room(const worker_report& report) noexcept;
  void send_state(const worker_report& report) noexcept;
  void send_all_state() noexcept;

  const std::string address_;
  const int rank_;
  const int incarnation_;
  const pid_t owner_;

  std::mutex mutex_;  // guards all of these
  unique_descriptor connection_;
  bool is_gone_ = false;   ///< the agent is
  bool is_behind_ = true;  ///< a state was not told
  time_point next_connect_{};
  time_point next_progress_{};
  std::optional<std::uint64_t> untold_progress_;
  known_worlds worlds_;
  known_suspects suspects_;
  std::map<std::uint64_t, open_deadline> deadlines_;
  std::optional<restart_request> asks_;
  std::uint64_t next_deadline_ = 1;

  kept_member_work<&agent_reporter::note_turn> turn_{*this};
  std::atomic<bool> is_asked_{false};
  std::atomic<std::uint64_t> turns_{0};

  std::mutex stay_mutex_;    // held while a dump is made, so that the runtime stays
  std::uint64_t stays_ = 0;  // guarded by stay_mutex_
  std::atomic<std::uint64_t> stay_at_{0};  ///< 0 without one; written under stay_mutex_
};

}  // namespace manyworlds::inline v0::detail
