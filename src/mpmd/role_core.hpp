// Role core: what a role context is made of while it runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/detail/notice.hpp"
#include "manyworlds/mpmd/role_context.hpp"
#include "manyworlds/store/store.hpp"
#include "mpmd/agent_outbox.hpp"
#include "mpmd/job_meeting.hpp"

namespace manyworlds::inline v0::detail {

class session_core;

/// One world of an edge that this instance has.
struct edge_world {
  world_name name;
  rank_t rank = 0;
  rank_t size = 2;
  instance_id peer;  ///< without a role for a group
};

/// Returns the worlds that an instance has at a bulk edge. Errors: std::logic_error if
/// the edge is not its role's.
[[nodiscard]] std::vector<edge_world> worlds_of_edge(const job_graph& graph,
                                                     const graph_edge& edge,
                                                     const instance_id& self);

/// Returns the worlds in which an instance asks at a calls edge, or answers. Errors:
/// std::logic_error if its role does not.
[[nodiscard]] std::vector<edge_world> worlds_of_calls(const job_graph& graph,
                                                      const graph_edge& edge,
                                                      const instance_id& self, bool asks);

/// Thread: the runtime's reactor, but for `ready` and `progress`, which any may call.
class role_core {
 public:
  role_core(instance_id instance, std::uint64_t incarnation, std::string node,
            std::string token, std::string job, std::string meeting_address,
            int local_rank)
      : instance_(std::move(instance)),
        incarnation_(incarnation),
        node_(std::move(node)),
        token_(std::move(token)),
        job_(std::move(job)),
        meeting_address_(std::move(meeting_address)),
        local_rank_(local_rank) {}

  [[nodiscard]] task<void> run(runtime& rt, store& meeting, role_context::role_body body);
  [[nodiscard]] task<void> keep_worlds(std::string edge, bool is_group,
                                       role_context::peer_body body);
  [[nodiscard]] task<void> answer_calls(std::string edge, role_methods& answers);
  [[nodiscard]] task<void> ask(std::string edge, role_group& of);
  [[nodiscard]] task<session> start_session(session_options limits);
  [[nodiscard]] task<void> work(const function_table& functions);
  [[nodiscard]] task<peer_event> next_peer_event();
  void ready() noexcept { ready_.set(); }
  void progress(std::uint64_t steps) noexcept {
    steps_.store(steps);
    has_progress_.set();
  }
  [[nodiscard]] task<void> leaving() { co_await leaving_; }
  [[nodiscard]] task<void> record(std::string key, std::string value);

  [[nodiscard]] const instance_id& instance() const noexcept { return instance_; }
  [[nodiscard]] const std::string& node() const noexcept { return node_; }
  /// Returns the job's meeting store, if it is another than the launcher's words name.
  [[nodiscard]] const std::string& meeting_address() const noexcept {
    return meeting_address_;
  }
  [[nodiscard]] const job_graph& graph() const;
  [[nodiscard]] const std::map<std::string, std::string>& facts() const;
  role_context::failover_handler& controller() noexcept { return controller_; }

 private:
  /// A fact that is on its way.
  struct fact {
    std::uint64_t number = 0;
    std::string value;
    event recorded;
    std::string refused;
  };

  [[nodiscard]] task<void> keep_agent();
  [[nodiscard]] task<void> leave_agent();
  [[nodiscard]] task<void> serve_agent(world& w, scope& s);
  [[nodiscard]] task<void> read_agent(world& w, scope& s);
  [[nodiscard]] task<void> tell_ready();
  [[nodiscard]] task<void> tell_progress();
  [[nodiscard]] task<void> answer(agent_word asked);
  void hear(agent_word word, scope& s);
  void tell_lost(const instance_id& worker, std::uint64_t incarnation,
                 const std::string& why) const;
  [[nodiscard]] task<void> end_session();
  void abandon_session() noexcept;
  [[nodiscard]] agent_word word_of(agent_wire::word_kind kind) const;
  [[nodiscard]] agent_word progress_word() const;
  [[nodiscard]] agent_word word_of_fact(const std::string& key, const fact& own) const;
  using peer_body = role_context::peer_body;

  [[nodiscard]] const graph_edge& edge_named(const std::string& name) const;
  [[nodiscard]] task<void> keep_all(std::string edge, std::vector<edge_world> own,
                                    peer_body body);
  [[nodiscard]] task<void> keep_one(edge_world own, const std::string& edge,
                                    const peer_body& body);
  void note(peer_event what);

  const instance_id instance_;
  const std::uint64_t incarnation_;
  const std::string node_;
  const std::string token_;
  const std::string job_;
  const std::string meeting_address_;
  const int local_rank_;  ///< among the instances of its role on its node
  runtime* runtime_ = nullptr;
  store* keys_ = nullptr;
  job_graph graph_;
  std::map<std::string, std::string> facts_;
  event placed_;
  event leaving_;
  event is_done_;   ///< the program has ended
  event has_left_;  ///< and has left its agent
  std::string refused_;
  current_outbox to_agent_;
  std::uint64_t facts_told_ = 0;
  std::map<std::string, std::shared_ptr<fact>> on_its_way_;
  role_context::failover_handler controller_;
  /// Of a role that is a session: the one that its controller has started.
  std::weak_ptr<session_core> session_;
  bool had_session_ = false;
  std::deque<peer_event> peer_events_;
  event has_peer_events_;
  notice ready_;
  notice has_progress_;
  std::atomic<std::uint64_t> steps_{0};
};

}  // namespace manyworlds::inline v0::detail
