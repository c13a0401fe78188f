// Report: the contents of a dump, as values. `text_of` and `json_of` print it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "manyworlds/failure.hpp"
#include "manyworlds/observe/turn_times.hpp"
#include "observe/tally.hpp"

namespace manyworlds::inline v0::detail {

/// An operation that waits, or has ended.
struct operation_report {
  operation_kind kind = operation_kind::none;
  rank_t peer = no_rank;
  std::uint64_t lane = 0;
  std::uint64_t bytes_moved = 0;
  std::uint64_t bytes_wanted = 0;
  bool begun = false;
  /// What a waiting send waits for; else empty.
  std::string waits_for;
  /// Time since it was started; of an ended operation, the time that it took.
  duration age{0};
  std::string file;
  unsigned line = 0;

  // These describe an ended operation.
  world_name world;
  std::uint64_t epoch = 0;
  enum cause failed_with = cause::none;
  duration ended_ago{0};
};

struct member_report {
  rank_t rank = no_rank;
  process_identity identity;
  std::string address;
  bool is_self = false;
  bool is_suspect = false;
  /// How its data comes: "shm" or "tcp"; empty for this process.
  std::string transport;
  duration silence{0};
  /// Unknown while the service thread does not answer.
  std::optional<bool> has_left;
};

/// The part that only the reactor may read.
struct transfer_report {
  std::string transport;
  std::vector<lane_status> lanes;
  std::optional<collective_status> collective;
  transfer_counters counters;
  /// Present for a GPU world.
  std::optional<device_status> device;
};

struct world_report {
  world_name name;
  std::uint64_t epoch = 0;
  std::uint64_t instance = 0;
  rank_t rank = no_rank;
  rank_t size = 0;
  std::string state;
  /// Why it is broken or closed.
  failure first_cause;
  world_history history;
  std::vector<member_report> members;
  std::vector<operation_report> pending;
  /// Unknown while the reactor does not answer; empty before the world is up and after
  /// its end.
  std::optional<transfer_report> transfers;
};

/// A world that is broken or closed and of which only the reason is left.
struct ended_world_report {
  world_name name;
  std::uint64_t epoch = 0;
  std::string reason;
  duration ended_ago{0};
};

/// A task that was given to `runtime::start`, `run` or `start_service`.
struct task_report {
  /// Source file that started it.
  std::string file;
  unsigned line = 0;
  /// Time since its start; of a task that has ended, since its end.
  duration age{0};
  /// The exception that it ended by, if any.
  std::string error;
};

struct link_report {
  process_identity identity;
  std::string incarnation;
  std::string address;
  bool is_up = false;
  bool is_held = false;
  /// The peer lives on this host and shares memory with us.
  bool is_local = false;
  /// Its large messages are read from its memory and not copied through shared memory.
  bool is_readable = false;
  duration silence{0};
  /// Turns of the peer's reactor, and the time since that number changed.
  std::uint64_t peer_turns = 0;
  duration without_turn{0};
};

/// One of the runtime's two reactors.
struct reactor_report {
  std::string engine;
  std::uint64_t turns = 0;
  /// Empty if it answered; else the time since it was first asked.
  std::optional<duration> silent_for;
  /// Durations of its turns. The service reactor's tasks are the library's own, and
  /// stores'.
  turn_times times = {};
  /// Time that it polls now before it sleeps.
  duration spin{0};
  /// True if it would spin, but a peer is bound to the one CPU that this reactor has.
  bool spin_is_held = false;
  /// The CPU that its thread is bound to, if it is only one.
  std::optional<unsigned> only_cpu;
};

/// A worker of a job that is launched here.
struct job_worker_report {
  int rank = 0;
  int pid = 0;  ///< 0 before its first start
  std::uint64_t starts = 0;
  /// "starts", "runs", "succeeded", or how it has ended.
  std::string state;
};

/// A job of which this process is an agent.
struct job_report {
  std::string run;
  std::uint64_t round = 0;
  std::uint64_t nodes = 0;
  int node = 0;  ///< this one
  int size = 0;  ///< all workers
  std::uint64_t restarts = 0;
  /// Those of this node.
  std::vector<job_worker_report> workers;
  /// Why the workers are ended; else empty.
  std::string ending;
  /// The last ones, oldest first.
  std::vector<std::string> verdicts;
};

/// A worker, as the controller of its session knows it. It is not asked for a report:
/// what it said last stands there.
struct session_worker_report {
  int id = 0;
  std::int64_t pid = 0;  ///< 0 for a thread
  std::uint64_t incarnation = 0;
  /// "starting", "ready", "stuck in ...", or how it was lost.
  std::string state;
  std::size_t waiting = 0;  ///< commands that it was not sent yet
  std::size_t sent = 0;     ///< commands that it has not said to have done
  /// The first of these that is a call; 0 if there is none.
  std::uint64_t call = 0;
  std::string function;
  /// For how long it is in it, and what it waits for there, once it has said that.
  std::optional<duration> in_call;
  std::string doing;
  /// Time since it was asked, if an answer would have come by now.
  std::optional<duration> silent_for;
};

/// A session of which this process is the controller.
struct session_report {
  std::string name;
  std::size_t open_calls = 0;
  std::vector<session_worker_report> workers;

  /// Says which workers are in which calls: "worker 2 in mlp (call 17) for 3.1 s; workers
  /// 0, 1 in mlp (call 17) for 3.1 s: all_reduce, waits for worker 2". Empty if none is.
  [[nodiscard]] std::string doing() const;
};

struct runtime_report {
  process_identity identity;
  std::string thread_name;
  std::string address;
  std::string incarnation;
  duration uptime{0};
  reactor_report user;
  reactor_report service;
  /// Tasks that run.
  std::vector<task_report> tasks;
  /// Tasks that ended last by an exception, oldest first.
  std::vector<task_report> failed_tasks;
  serving_report serving;
  std::vector<job_report> jobs;
  /// Unknown while the reactor does not answer.
  std::optional<std::vector<session_report>> sessions;
  std::vector<world_report> worlds;
  /// Worlds that ended last, oldest first.
  std::vector<ended_world_report> ended_worlds;
  /// Unknown while the service thread does not answer.
  std::optional<std::vector<link_report>> links;
  /// Operations that ended last, oldest first.
  std::vector<operation_report> recent;
};

[[nodiscard]] std::string text_of(const runtime_report& report);
[[nodiscard]] std::string json_of(const runtime_report& report);

}  // namespace manyworlds::inline v0::detail
