// Job master: one term of the process that decides about a job.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/mpmd/job_graph.hpp"
#include "manyworlds/store/store.hpp"
#include "manyworlds/world/runtime.hpp"
#include "manyworlds/world/world.hpp"
#include "mpmd/agent_outbox.hpp"
#include "mpmd/agent_words.hpp"
#include "mpmd/context_store.hpp"
#include "mpmd/graph_status.hpp"
#include "mpmd/job_manager.hpp"
#include "mpmd/job_meeting.hpp"

namespace manyworlds::inline v0::detail {

class rank_places;

/// A job may have as many nodes, each with its agent.
inline constexpr std::size_t most_nodes = 4096;

struct master_options {
  manager_limits limits;
  /// Returns the time for records. Null: this machine's clock.
  std::function<recorded_time()> clock;
};

/// Takes the next term of a job, hears its agents, and closes the gap between what is and
/// what should be until the job is over. It records what it will do, and then does it
/// (law G-b); so it may be killed at any moment, and another one goes on.
///
/// Thread: the runtime's reactor. Lifetime: runtime and stores outlive it.
class job_master {
 public:
  /// `meeting` is where agents and clients of this job find it, and nothing of it is
  /// decided there. `begins` is the graph of a job that may be new.
  job_master(runtime& rt, store& meeting, context_store& context,
             std::optional<job_graph> begins, const std::string& job,
             master_options options);
  job_master(const job_master&) = delete;
  job_master& operator=(const job_master&) = delete;

  /// Ends with the job's exit code. Errors: context_error (`deposed` once another master
  /// has a higher term; `damaged`; ...), store_error; std::invalid_argument if there is
  /// no job and no graph, or another graph than this one.
  [[nodiscard]] task<int> run();
  /// Returns the term that it took; 0 while it has none.
  [[nodiscard]] std::uint64_t term() const noexcept { return term_; }

 private:
  struct agent_link {
    std::string agent;
    agent_outbox outbox;
  };

  [[nodiscard]] task<void> take_over();
  [[nodiscard]] task<void> go_on_telling();
  [[nodiscard]] task<void> manage();
  [[nodiscard]] task<void> record();
  [[nodiscard]] task<void> obey_stop();
  [[nodiscard]] task<void> tell_status();
  void make_text();
  [[nodiscard]] task<void> watch_store();
  [[nodiscard]] task<void> say_goodbye();

  [[nodiscard]] task<void> serve_agent(world& w);
  [[nodiscard]] task<void> hold_agent(world& w, std::string node,
                                      std::shared_ptr<agent_link> link);
  /// Ends when another link has replaced that one.
  [[nodiscard]] task<void> read_agent(world& w, const std::string& node,
                                      const agent_link& own);
  /// Returns false for what an agent does not say.
  bool hear(const std::string& node, agent_word word);
  void hear_fact(const std::string& node, agent_word word);
  void tell(const std::string& node, agent_word word);
  void carry_out(const std::vector<agent_order>& orders);
  [[nodiscard]] start_spec spec_of(std::size_t instance, rank_places& places) const;
  /// Returns the time by which it decides. It goes on steadily from when the term began:
  /// a clock that is set, or a machine that slept, lets no span pass (law G-c).
  [[nodiscard]] recorded_time now() const;
  [[nodiscard]] recorded_time time_of_day() const;

  runtime& runtime_;
  job_meeting meeting_;
  context_store& context_;
  std::optional<job_graph> begins_;
  master_options options_;
  const recorded_time began_;
  const std::chrono::steady_clock::time_point began_steadily_;
  std::uint64_t term_ = 0;
  std::unique_ptr<job_manager> manager_;
  graph_status status_;
  std::map<std::string, std::shared_ptr<agent_link>, std::less<>> agents_;  // by node
  /// What is told once the changes are written.
  std::vector<std::pair<std::string, agent_word>> after_write_;
  /// Why someone has asked the job to end, until that is concluded from.
  std::optional<std::string> stop_asked_;
  event wake_;
  event recorded_;  ///< nothing was concluded that is not recorded
  event has_news_;
  bool wants_text_ = false;
  event has_text_;
  std::string text_;           ///< the status that is told next
  bool is_text_last_ = false;  ///< it says that the job is over
  event is_over_;
  event is_last_told_;
  event gone_;
  bool is_deposed_ = false;
};

}  // namespace manyworlds::inline v0::detail
