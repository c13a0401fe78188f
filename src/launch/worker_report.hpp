// Worker report: one message from a worker to the agent that has started it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <variant>

#include "link/wire.hpp"
#include "manyworlds/failure.hpp"
#include "manyworlds/launch/job_reports.hpp"
#include "manyworlds/time.hpp"
#include "manyworlds/world/world_event.hpp"

namespace manyworlds::inline v0::detail {

/// A longer message is neither sent nor read.
constexpr std::size_t longest_report = 8192;
/// Texts are cut here, so that one name cannot fill a message.
constexpr std::size_t longest_report_name = 255;
constexpr std::size_t longest_report_value = 1024;
constexpr std::size_t most_report_fields = 32;

/// Comes first. The process is known from the kernel and need not be told.
struct worker_hello {
  int rank = 0;
  int incarnation = 0;
};

/// The oldest operation that has not ended.
struct worker_wait {
  operation_kind kind = operation_kind::none;
  std::string world;
  std::uint64_t epoch = 0;
  /// The member that it waits for; no pid where it is all of them, or any.
  std::int64_t peer_pid = 0;
  std::string peer_host;
  duration age{0};
};

/// Comes a few times a second from the service thread.
struct worker_beat {
  /// How often the user's reactor has answered the service thread, which asks it before
  /// each beat.
  std::uint64_t turns = 0;
  /// Nothing if it waits for no other member.
  std::optional<worker_wait> waits;
};

struct worker_progress {
  std::uint64_t step = 0;
};

/// Comes when a world of the worker has changed.
struct world_news {
  world_event_kind kind = world_event_kind::formed;
  std::string world;
  std::uint64_t epoch = 0;
  enum cause why = cause::none;
  /// The members of the world; 0 where it was not formed.
  int size = 0;
  /// The process that it is about; no pid if none is known.
  std::int64_t pid = 0;
  std::string host;
};

/// The latest news of each world.
using known_worlds = std::map<std::string, world_news, std::less<>>;
/// The members that a worker does not hear, by world, pid and host, also of a world that
/// broke by their silence: pids of containers are often the same.
using known_suspects =
    std::map<std::tuple<std::string, std::int64_t, std::string>, world_news>;
/// Notes what a worker tells, which the worker and its agent both keep. What is beyond
/// `most` worlds or suspects is left out.
void note_news(const world_news& news, std::size_t most, known_worlds& worlds,
               known_suspects& suspects);

struct deadline_begun {
  std::uint64_t number = 0;
  duration left{0};
  std::string what;
};
struct deadline_ended {
  std::uint64_t number = 0;
};

struct reported_event {
  std::string name;
  job_fields fields;
};
struct reported_metric {
  std::string name;
  double value = 0;
};
struct reported_span {
  std::string name;
  duration took{0};
};

/// The application cannot go on without a start of all.
struct restart_request {
  std::string why;
};

/// The runtime of the job ends, so that no beat follows.
struct worker_rest {};

/// The dump that was asked for is written.
struct dump_written {};

/// What was told of worlds and deadlines may have been dropped: all of it follows anew.
struct state_again {};

using worker_report =
    std::variant<worker_hello, worker_beat, worker_progress, world_news, deadline_begun,
                 deadline_ended, reported_event, reported_metric, reported_span,
                 worker_rest, dump_written, state_again, restart_request>;

/// Returns the message. Long texts are cut, and fields beyond the limit left out; a
/// message may still be too long.
[[nodiscard]] bytes encoded(const worker_report& report);
/// Errors: wire_error for anything that `encoded` does not give.
[[nodiscard]] worker_report decoded_report(std::span<const std::byte> message);

/// What the agent sends, with a descriptor beside it that the worker writes its dump to.
constexpr std::byte dump_request{1};

}  // namespace manyworlds::inline v0::detail
