// Agent words: what a job's master, the agents of its nodes, and the workloads that use
// the library say to each other.
//
// Master and agent share a world of two, in which the master is rank 0, and so do an
// agent and a workload, in which the agent is rank 0. Each message is a head and a text
// of JSON. The agent begins, with `hello`; the master answers with `welcome`, and then
// gives orders, which are idempotent. A connection belongs to one term. A workload begins
// with `join`, and is answered by `place`.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/mpmd/job_graph.hpp"
#include "manyworlds/mpmd/node_resources.hpp"
#include "manyworlds/time.hpp"
#include "manyworlds/world/world.hpp"
#include "mpmd/instance_report.hpp"

namespace manyworlds::inline v0::detail {

namespace agent_wire {

inline constexpr std::uint32_t version = 2;
/// What an agent has to say of 4,096 instances is less.
inline constexpr std::size_t longest_text = std::size_t{4} * 1024 * 1024;
inline constexpr std::size_t longest_agent_name = 64;
/// The text of an exit is cut there: a program's error file may hold a page.
inline constexpr std::size_t longest_exit_text = 4096;

enum class word_kind : std::uint32_t {
  // Of an agent.
  hello = 1,
  report,
  fact,
  answer,
  // Of the master.
  welcome,
  ensure,
  end,
  recorded,
  fact_recorded,
  ask,
  over,
  // Of a workload to its agent; it also says `fact` and `answer`.
  join,
  ready,
  progress,
  // Of the controller of a session, which its agent passes on to the master.
  lost,
  // Of an agent to a workload; it also says `ask` and `fact_recorded`.
  place,
  leaving,
  // Of each: why it will not go on with the other one.
  refusal,
};

struct word_head {
  word_kind kind;
  std::uint32_t version;
};

}  // namespace agent_wire

/// How an instance is started. All of it travels, so that an agent needs no graph.
struct start_spec {
  std::vector<std::string> command;
  std::string folder;
  std::map<std::string, std::string> variables;
  std::vector<std::uint32_t> cpus;
  std::vector<std::string> gpus;
  bool has_gpus_of_its_own = false;  ///< otherwise it sees those of the agent
  bool waits_until_ready = false;
  duration drain{};
  duration grace{};
  std::map<std::string, std::string> facts;  ///< what earlier incarnations have recorded

  friend bool operator==(const start_spec&, const start_spec&) = default;
};

/// One message, in the fields that belong to its kind.
struct agent_word {
  agent_wire::word_kind kind = agent_wire::word_kind::hello;
  /// Of `hello`: the highest that the agent has heard of. Of `welcome`: the master's.
  std::uint64_t term = 0;
  node_resources node;               ///< of `hello`
  std::string agent;                 ///< of `hello`: names the agent's process
  std::vector<instance_report> has;  ///< of `hello`; of `report`, one
  /// Of those that are about an instance.
  instance_id instance;
  std::uint64_t incarnation = 0;
  /// Of `ensure`; of `place`, the facts in it.
  start_spec spec;
  std::string graph;                ///< of `welcome` and `place`: the job's, as JSON
  std::optional<duration> absence;  ///< of `welcome`: the job's
  /// Of `progress`. Of `lost`, the incarnation that is. Of `fact` and `fact_recorded`:
  /// the number of what an incarnation has told to be recorded, so that the answer for
  /// one value is not taken for the next's.
  std::uint64_t steps = 0;
  std::string key;  ///< of `fact` and `fact_recorded`
  /// Of `fact`, any bytes; of `fact_recorded`, why it was refused; of `join`, what proves
  /// it; of `refusal` and `lost`, why.
  std::string value;
  /// Of `ask`, `answer` and `lost`: the instance that failed.
  instance_id about;
  bool is_handled = false;  ///< of `answer`
  bool drains = false;      ///< of `end`: a workload that is joined is first let drain
  /// What it was said in. A `hello` and a `join` of another version may have nothing else
  /// that could be read, and are answered by a refusal in their own.
  std::uint32_t version = agent_wire::version;

  friend bool operator==(const agent_word&, const agent_word&) = default;
};

[[nodiscard]] std::string text_of(const agent_word& word);
/// Errors: std::invalid_argument naming what cannot be read. It allocates no more than a
/// few times the text (law 11).
[[nodiscard]] agent_word agent_word_from(agent_wire::word_kind kind,
                                         std::string_view text);

/// Returns the refusal of a first word of another version, which says to install the same
/// on both sides; nothing for one of this version. `theirs` and `ours` name the sides.
[[nodiscard]] std::optional<agent_word> refusal_of_version(const agent_word& first,
                                                           std::string_view theirs,
                                                           std::string_view ours);
/// Sends a word. Errors: those of the world.
[[nodiscard]] task<void> send_word(world& w, rank_t peer, agent_word word);
/// Receives the next one. What cannot be read, is too long or of another version breaks
/// the world by a sentence; but the first words of another version, and a refusal in any
/// version, are returned. Errors: those of the world.
[[nodiscard]] task<agent_word> receive_word(world& w, rank_t peer);

}  // namespace manyworlds::inline v0::detail
