// Coordinator: the one agent of a run that decides on its rounds.
#pragma once

#include <cstddef>
#include <list>
#include <string>
#include <string_view>

#include "launch/notice_board.hpp"
#include "launch/rendezvous_words.hpp"
#include "launch/round_table.hpp"
#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/launch/rendezvous.hpp"
#include "manyworlds/world/runtime.hpp"

namespace manyworlds::inline v0::detail {

/// Holds a seat, hears the agents and publishes rounds. It decides in one coroutine.
/// Thread: the runtime's reactor. Lifetime: what it is made with outlives it.
class coordinator {
 public:
  /// What it knows of one agent, while that one is connected: over a world, or in this
  /// process.
  class session {
   public:
    explicit session(coordinator& c);
    session(const session&) = delete;
    session& operator=(const session&) = delete;
    ~session();

    /// Takes the agent's words. Errors: wire_error if they make no sense.
    void hear(agent_words said);
    /// Returns the words for the agent, with the notices that it was not told yet.
    [[nodiscard]] coordinator_words words();
    /// Is set when there are other words for the agent.
    [[nodiscard]] event& changed() noexcept { return changed_; }
    [[nodiscard]] bool is_spare_of(const round& stands) const noexcept {
      return is_known_ && said_.asks && !said_.has_left && !stands.find(said_.node.id);
    }
    /// The node is not taken, for this reason.
    void refuse(std::string why) { refusal_ = std::move(why); }
    /// The agent's process has died: it is not waited for.
    void note_death() noexcept { has_died_ = true; }

   private:
    coordinator& owner_;
    std::list<session*>::iterator place_;
    agent_words said_;
    std::string refusal_;
    bool is_known_ = false;
    bool has_died_ = false;
    notice_board::mark told_;
    event changed_;
  };

  /// `self` is the id of the node in this process.
  coordinator(runtime& rt, rendezvous_backend& backend, coordinator_seat& seat,
              const rendezvous_options& options, std::string self);
  coordinator(const coordinator&) = delete;
  coordinator& operator=(const coordinator&) = delete;

  /// Takes agents and decides, until the seat is lost. Errors: those of the backend, but
  /// for store_error.
  task<void> run();
  /// Returns the number of agents that are connected.
  [[nodiscard]] std::size_t agents() const noexcept { return sessions_.size(); }
  /// Erases what agents that look for a coordinator have left in the store.
  task<void> leave_nothing();
  /// Waits until at most that many agents are connected.
  task<void> until_agents(std::size_t at_most);

 private:
  template <class Ask>
  task<bool> insist(Ask ask);
  task<void> recall();
  void recall_round(const std::string& text);
  task<void> take_agents();
  task<void> take_outsiders();
  task<void> serve(world& w);
  task<void> decide();
  task<bool> publish(const round& decided);
  task<bool> close();
  void refuse_surplus();
  void tell_all() noexcept;
  [[nodiscard]] std::string objection_to(const agent_words& said) const;

  runtime& runtime_;
  rendezvous_backend& backend_;
  coordinator_seat& seat_;
  const rendezvous_options& options_;
  const std::string self_;
  round_table table_;
  notice_board board_;
  std::list<session*> sessions_;
  event to_decide_;
  event fewer_agents_;
  bool closing_ = false;
};

/// Returns what is wrong with the description of a node; empty if nothing is. What passes
/// it comes back from a round's JSON as it was.
[[nodiscard]] std::string wrong_with(const node_description& node);

/// Says whether a name has letters, digits, `-`, `_` and `.` alone, and a size that fits.
[[nodiscard]] bool is_plain_name(std::string_view name, std::size_t longest) noexcept;

/// Returns the name of the service under which the agents of a run meet.
[[nodiscard]] service_name rendezvous_service(const std::string& run_id);
/// Returns the options of the world between an agent and the coordinator.
[[nodiscard]] world_options world_of_two(const rendezvous_limits& limits);

}  // namespace manyworlds::inline v0::detail
