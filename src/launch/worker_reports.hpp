// Worker reports: the agent's end of what workers report, and what is known by that.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/descriptor.hpp"
#include "io/reactor.hpp"
#include "launch/worker_report.hpp"
#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/task.hpp"

namespace manyworlds::inline v0::detail {

/// What is known of one process that holds a rank.
struct worker_account {
  struct deadline {
    time_point until;
    std::string what;
  };

  int rank = 0;
  int incarnation = 0;
  pid_t pid = 0;
  /// The process that reports: one that the worker's has started, if that is a shell.
  pid_t reporter = 0;
  time_point started{};

  /// It has reported at least once.
  bool has_come = false;
  bool is_connected = false;
  /// Its runtime has ended, so that silence means nothing.
  bool is_at_rest = false;
  std::optional<time_point> last_beat;
  /// When a beat last came late.
  std::optional<time_point> last_late;
  std::uint64_t turns = 0;
  time_point last_turn{};
  std::optional<std::uint64_t> progress;
  time_point last_progress{};
  std::optional<worker_wait> waits;
  /// When it was last known to wait.
  time_point last_wait{};
  known_worlds worlds;
  known_suspects suspects;
  std::map<std::uint64_t, deadline> deadlines;
  std::uint64_t dumps = 0;
};

/// Is told of what the reports change. It begins and ends no account meanwhile. Thread:
/// the reactor's.
class worker_reports_listener {
 public:
  virtual void world_changed(const worker_account& of, const world_news& news) = 0;
  /// A deadline has passed; it is told once.
  virtual void has_overrun(const worker_account& who, const std::string& what) = 0;
  /// An event, a metric or a span.
  virtual void was_reported(const worker_account& by, const worker_report& what) = 0;

 protected:
  ~worker_reports_listener() = default;
};

/// Listens on an abstract Unix socket, which a worker is told in MANYWORLDS_AGENT. Only
/// this user's processes are heard, and only the one of a worker's tree that says its
/// rank and incarnation first. What does not read as a report ends its connection.
///
/// Thread: the reactor's. Lifetime: the reactor and the listener outlive it.
class worker_reports {
 public:
  /// Errors: std::system_error if there is no descriptor.
  worker_reports(reactor& home, worker_reports_listener& told);
  worker_reports(const worker_reports&) = delete;
  worker_reports& operator=(const worker_reports&) = delete;

  /// Returns the value of MANYWORLDS_AGENT.
  [[nodiscard]] const std::string& address() const noexcept { return address_; }

  /// Hears the workers until it is cancelled.
  [[nodiscard]] task<void> run();

  /// Begins the account of a process; the one before it of the rank is dropped.
  void begin(int rank, int incarnation, pid_t pid);
  /// Hears what a process that has ended had said before.
  void hear_rest(int rank);
  /// Drops its account.
  void end(int rank) noexcept;
  [[nodiscard]] const std::map<int, worker_account>& accounts() const noexcept {
    return accounts_;
  }
  /// Returns null if no process has the rank.
  [[nodiscard]] const worker_account* of(int rank) const noexcept;
  /// Returns the rank of a process by what its peers know of it; for one that has no
  /// account a number below 0, another one for each.
  [[nodiscard]] int rank_of(std::int64_t pid, std::string_view host) const;

  /// Asks a worker to write its dump there. Returns whether it was asked; it answers by
  /// one more in `worker_account::dumps`.
  [[nodiscard]] bool ask_for_dump(int rank, int to) noexcept;

 private:
  struct connection {
    connection(worker_reports& of, unique_descriptor from, pid_t other) noexcept
        : self(of), socket(std::move(from)), peer(other) {
      ++self.open_;
    }
    connection(const connection&) = delete;
    connection& operator=(const connection&) = delete;
    ~connection() {
      --self.open_;
      self.forget(*this);
    }

    worker_reports& self;
    const unique_descriptor socket;
    const pid_t peer;
    int rank = -1;  ///< until it is known
    int incarnation = 0;
    std::optional<worker_hello> hello;
    /// The process has ended, or does not speak our language.
    bool is_over = false;
  };

  [[nodiscard]] task<void> accept_all();
  [[nodiscard]] int accept_waiting(int most);
  [[nodiscard]] task<void> serve(std::shared_ptr<connection> from);
  void forget(const connection& c) noexcept;
  [[nodiscard]] task<bool> take_hello(connection& from);
  [[nodiscard]] bool greet(connection& from);
  void hear_waiting(worker_account& of);
  [[nodiscard]] task<void> watch_deadlines();
  [[nodiscard]] std::optional<worker_report> next_report(connection& from);
  [[nodiscard]] worker_account* account_of(const connection& from) noexcept;
  [[nodiscard]] worker_account* admitted(const connection& from, const worker_hello& h);

  void take(worker_account& of, const worker_report& report);
  void take(worker_account& of, const worker_beat& beat);
  void take(worker_account& of, const worker_progress& progress);
  void take(worker_account& of, const world_news& news);
  void take(worker_account& of, const deadline_begun& begun);

  reactor& home_;
  worker_reports_listener& listener_;
  const decltype(process_identity::host) host_;  ///< as peers know it
  std::string address_;
  unique_descriptor listening_;
  std::map<int, worker_account> accounts_;
  std::map<int, connection*> connections_;  ///< by rank
  std::vector<std::weak_ptr<connection>> newcomers_;
  std::size_t open_ = 0;
  scope* serving_ = nullptr;  ///< while it runs
  event deadlines_changed_;
};

}  // namespace manyworlds::inline v0::detail
