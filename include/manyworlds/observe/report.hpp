// Report: what a dump says, as values. `text_of` and `json_of` print it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "manyworlds/backend/backend.hpp"
#include "manyworlds/failure.hpp"
#include "manyworlds/io/turn_times.hpp"
#include "manyworlds/observe/tally.hpp"

namespace manyworlds::inline v0 {

/// An operation that waits, or has ended.
struct operation_report {
  operation_kind kind = operation_kind::none;
  rank_t peer = no_rank;
  std::uint64_t lane = 0;
  std::uint64_t bytes_moved = 0;
  std::uint64_t bytes_wanted = 0;
  bool begun = false;
  /// Of a send that waits; else empty.
  std::string waits_for;
  /// Since it was started; of an ended one, how long it took.
  duration age{0};
  std::string file;
  unsigned line = 0;

  // Of an ended one.
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
  /// How its data comes: "shm" or "tcp"; empty for oneself.
  std::string transport;
  duration silence{0};
  /// Unknown while the service thread does not answer.
  std::optional<bool> has_left;
};

/// What only the reactor may look at.
struct transfer_report {
  std::string transport;
  std::vector<lane_status> lanes;
  std::optional<collective_status> collective;
  transfer_counters counters;
  /// Of a GPU world.
  std::optional<device_status> device;
};

struct world_report {
  world_name name;
  std::uint64_t epoch = 0;
  std::uint64_t instance = 0;
  rank_t rank = no_rank;
  rank_t size = 0;
  std::string state;
  /// What it is broken or closed by.
  failure first_cause;
  world_history history;
  std::vector<member_report> members;
  std::vector<operation_report> pending;
  /// Unknown while the reactor does not answer; empty before the world is up and after
  /// its end.
  std::optional<transfer_report> transfers;
};

/// A world that is broken or closed and of which nothing is left but the reason.
struct ended_world_report {
  world_name name;
  std::uint64_t epoch = 0;
  std::string reason;
  duration ended_ago{0};
};

/// A task that was given to `runtime::start`, `run` or `start_service`.
struct task_report {
  /// Where it was started.
  std::string file;
  unsigned line = 0;
  /// Since its start; of one that has ended, since its end.
  duration age{0};
  /// What it ended by, if that was an exception.
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
  /// Its large messages are read from its memory, not copied through what is shared.
  bool is_readable = false;
  duration silence{0};
  /// The peer reactor's turns, and since when that number has not changed.
  std::uint64_t peer_turns = 0;
  duration without_turn{0};
};

/// One of the runtime's two reactors.
struct reactor_report {
  std::string engine;
  std::uint64_t turns = 0;
  /// Nothing: it answered. Else for how long it has not, since first asked.
  std::optional<duration> silent_for;
  /// The service reactor's tasks are the library's own, and stores'.
  turn_times times = {};
  /// How long it looks before it sleeps, now.
  duration spin{0};
  /// It would spin, but a peer has no CPU other than the one that this reactor is bound
  /// to.
  bool spin_is_held = false;
  /// The one CPU that its thread is bound to.
  std::optional<unsigned> only_cpu;
};

struct runtime_report {
  process_identity identity;
  std::string thread_name;
  std::string address;
  std::string incarnation;
  duration uptime{0};
  reactor_report user;
  reactor_report service;
  /// Those that run.
  std::vector<task_report> tasks;
  /// The last few that ended by an exception, oldest first.
  std::vector<task_report> failed_tasks;
  serving_report serving;
  std::vector<world_report> worlds;
  /// The last few, oldest first.
  std::vector<ended_world_report> ended_worlds;
  /// Unknown while the service thread does not answer.
  std::optional<std::vector<link_report>> links;
  /// Oldest first.
  std::vector<operation_report> recent;
};

[[nodiscard]] std::string text_of(const runtime_report& report);
[[nodiscard]] std::string json_of(const runtime_report& report);

}  // namespace manyworlds::inline v0
