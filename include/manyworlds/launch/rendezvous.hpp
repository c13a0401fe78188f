// Rendezvous: the nodes of a run agree on rounds.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/inline_text.hpp"
#include "manyworlds/launch/round.hpp"
#include "manyworlds/store/store.hpp"
#include "manyworlds/time.hpp"
#include "manyworlds/world/runtime.hpp"

namespace manyworlds::inline v0 {

/// How many nodes make a round, and how long they are waited for. Every agent of a run
/// gives the same; those of the coordinator count.
struct rendezvous_limits {
  std::size_t min_nodes = 1;
  std::size_t max_nodes = 1;
  /// How many nodes may wait until they take the place of a lost one; a further one is
  /// refused. Without it any number may.
  std::optional<std::size_t> spares = std::nullopt;
  /// How long `next` waits for a round. A spare waits for as long as a round stands.
  duration join = std::chrono::seconds(600);
  /// How long the first round waits for more nodes once there are `min_nodes`. Nothing is
  /// waited for once there are `max_nodes`.
  duration last_call = std::chrono::seconds(30);
  /// How long `close` waits until the coordinator has heard of it.
  duration close = std::chrono::seconds(30);
  /// A node that is silent for this long is lost. One that has died is lost at once.
  duration silence = std::chrono::seconds(5);
};

/// What has happened to the round that a node is in.
enum class round_change : unsigned char {
  none,
  node_lost,   ///< a node of it has died, or is silent for too long: the round is over
  node_left,   ///< a node of it drains: the round is over
  asked,       ///< a node of it asks for the next round: the round is over
  node_waits,  ///< the round stands, has room, and another node waits for the next one
  closed,      ///< the run is closed: no further round forms
};

[[nodiscard]] std::string_view name_of(round_change change) noexcept;

/// How a node leaves.
enum class departure : unsigned char {
  finished,  ///< its work is done: the round goes on without it
  draining,  ///< it must go: the others form another round
};

/// Says why a rendezvous failed.
enum class rendezvous_error_kind : unsigned char {
  closed,          ///< the run is closed
  timed_out,       ///< not enough nodes came within the join limit
  no_coordinator,  ///< the coordinator is gone, and no other could be found
  refused,         ///< the coordinator does not take this node: the text says why
  bad_options,     ///< an option is wrong: the text names it
};

/// The only exception of a rendezvous. Its text names run, node, time and cause.
class MANYWORLDS_EXPORT rendezvous_error : public std::exception {
 public:
  rendezvous_error(rendezvous_error_kind kind, const std::string& text);
  [[nodiscard]] const char* what() const noexcept override { return text_->c_str(); }
  [[nodiscard]] rendezvous_error_kind kind() const noexcept { return kind_; }

 private:
  rendezvous_error_kind kind_;
  std::shared_ptr<const std::string> text_;
};

/// The right to coordinate, held by one agent of a run at a time.
class coordinator_seat {
 public:
  coordinator_seat() = default;
  coordinator_seat(const coordinator_seat&) = delete;
  coordinator_seat& operator=(const coordinator_seat&) = delete;
  virtual ~coordinator_seat() = default;

  /// Names the seat to agents, which hand it to `rendezvous_backend::coordinator_died`.
  [[nodiscard]] virtual std::string name() const { return {}; }
  /// Returns the last round that a coordinator of the run has published, as JSON; empty
  /// if there is none, or where only the agents know it. Errors: store_error; it is tried
  /// again.
  virtual task<std::string> read() = 0;
  /// Publishes a round. Returns false if the seat was lost: then nothing was written, and
  /// no agent may be told. Errors: store_error if it may have been written; it is tried
  /// again.
  virtual task<bool> publish(std::string round_json) = 0;
  /// Notes that the run is closed, for agents that come later. Returns as `publish`.
  /// Errors: as of `publish`.
  virtual task<bool> close() = 0;
  /// Waits until the seat is lost. Where that cannot happen it waits until cancelled.
  /// Errors: none; a store that does not answer is tried until the seat has run out.
  virtual task<void> lost() = 0;
  /// Waits for a node that takes part without an agent of this library, such as
  /// torchrun's, and returns it with its place, each once. It stays in all rounds; its
  /// end is not seen. Errors: store_error; it is tried again.
  virtual task<round_node> next_outsider() {
    co_await sleep_for(duration::max());
    co_return round_node();
  }
};

/// Which agent of a run coordinates is the only difference between backends. One object
/// serves one agent. Thread: the runtime's reactor. Errors: what a member throws as
/// store_error is tried again; every other exception ends the agent's rendezvous.
///
///     mw::register_rendezvous_backend(
///         "mine", [](mw::runtime& rt, const mw::rendezvous_options& how) {
///           return make_my_backend(rt, how.endpoint);
///         });
class rendezvous_backend {
 public:
  rendezvous_backend() = default;
  rendezvous_backend(const rendezvous_backend&) = delete;
  rendezvous_backend& operator=(const rendezvous_backend&) = delete;
  virtual ~rendezvous_backend() = default;

  /// Returns the store through which agents and coordinator find each other.
  [[nodiscard]] virtual store& meeting_place() = 0;
  /// Waits until the agent of this node is to coordinate, for as long as it takes.
  /// Lifetime: the node outlives the backend.
  virtual task<std::unique_ptr<coordinator_seat>> take_seat(
      const node_description& self) = 0;
  /// Returns whether the run was closed by a coordinator before.
  virtual task<bool> is_closed() = 0;
  /// The process that held the seat has died: the seat need not time out.
  virtual task<void> coordinator_died(std::string seat) = 0;
  /// How long agents go on without a coordinator once they had one.
  [[nodiscard]] virtual duration patience() const noexcept = 0;
  /// Says whether another agent can take the seat. Otherwise the coordinator stays until
  /// the others have left, at most for `rendezvous_limits::close`.
  [[nodiscard]] virtual bool has_successors() const noexcept = 0;
  /// The place that this node was given. Nothing: the coordinator gives it one.
  [[nodiscard]] virtual std::optional<int> place() const noexcept { return std::nullopt; }
  /// Tells nodes without an agent of this library that this one leaves, its work done.
  /// `rendezvous::leave` waits for it within its own limit.
  virtual task<void> finish() { co_return; }
};

/// Describes a rendezvous.
struct rendezvous_options {
  /// Names the run: 1 to 40 bytes, letters, digits, `-`, `_` and `.`.
  std::string run_id = "none";
  rendezvous_limits limits = {};
  /// The backend's name: "standalone", "manual", "tcp", "etcd", "file", or what was
  /// registered.
  std::string backend = "standalone";
  /// What the backend is given: "host:port" for tcp and manual, and for standalone with
  /// several nodes; the endpoints of an `etcd_store`; a folder that all nodes see.
  std::string endpoint = {};
  /// Demanded of the clients of a store that the backend serves. Agents prove the secret
  /// of their runtimes to each other, over every backend: give it to both.
  secret_text secret = {};
  bool insecure = false;
  /// This node's place, for manual alone: 0 to `max_nodes` - 1, where node 0 serves the
  /// store at the endpoint. The number of nodes is fixed. A node with the rank of another
  /// is refused: of one that lives, or is silent for less than
  /// `limits.silence`.
  int node_rank = 0;
};

/// Makes the backend of one agent. The runtime outlives it.
using make_rendezvous_backend = std::function<std::unique_ptr<rendezvous_backend>(
    runtime&, const rendezvous_options&)>;

/// Adds a backend under a name, or replaces it, for all rendezvous of the process that
/// are made afterwards. Thread: any.
void register_rendezvous_backend(std::string name, make_rendezvous_backend make);

/// One node's part in the rendezvous of a run.
///
///     mw::rendezvous_options how{.run_id = "job7", .backend = "tcp"};
///     how.endpoint = "node1:29400";
///     mw::rendezvous meet(rt, how, mw::node_description("node2", 8));
///     co_await meet.run([&]() -> mw::task<void> {
///       const mw::round r = co_await meet.next();
///       start_workers(r.find(meet.id())->first_rank, r.size());
///       if (co_await meet.changed() == mw::round_change::node_lost) stop_workers();
///     });
///
/// Every agent holds a world of two with the coordinator: death is seen in milliseconds
/// and silence after `world_options::broken_after`, without keys to keep alive and
/// without the clocks of other hosts. A coordinator that dies is followed by another
/// where the backend has one; rounds that stand do not notice.
///
/// Thread: the runtime's reactor. Lifetime: the runtime outlives it.
class rendezvous {
 public:
  /// Errors: rendezvous_error (`bad_options`); what the backend's maker throws, such as
  /// std::invalid_argument for its endpoint.
  rendezvous(runtime& rt, rendezvous_options options, node_description self);
  rendezvous(const rendezvous&) = delete;
  rendezvous& operator=(const rendezvous&) = delete;
  ~rendezvous();

  /// Takes part for as long as `body()` runs. It then leaves as `finished` unless it has
  /// left, and tells the coordinator within a second. Precondition: called once. Errors:
  /// what the body throws.
  template <class Body>
  task<void> run(Body body) {
    task<void> running = body();
    co_await run_task(std::move(running));
  }

  /// Asks for the next round, which ends the round that this node is in, and waits for
  /// it. A node that is a spare waits on. Errors: rendezvous_error `closed`, `timed_out`,
  /// `no_coordinator`, `refused`.
  task<round> next();
  /// Waits until something happens to the round that this node is in, and says what. It
  /// says `node_waits` once for each round. Errors: rendezvous_error `no_coordinator`.
  task<round_change> changed();
  /// Waits until a later round stands without this node: it was taken for lost, and the
  /// ranks of its workers may be held by others. Errors: as of `changed`.
  task<void> left_out();
  /// Says whether that is so by now.
  [[nodiscard]] bool is_left_out() const noexcept;
  /// Tells the nodes of this round something, of at most 256 KiB; it replaces what this
  /// node told before. Ends when the coordinator has heard it, or after a second; it is
  /// told to each coordinator that follows. Precondition: `next` has returned a round.
  /// Errors: std::invalid_argument if it is longer.
  task<void> post(std::string text);
  /// Waits until the nodes of this round, this one among them, have told something that
  /// the last call did not return. Returns the last of each, by the nodes' ids. Errors:
  /// as of `changed`.
  task<std::map<std::string, std::string>> posted();
  /// Leaves, and waits at most a second until the coordinator has heard it. Others may
  /// take the place at once. `next` may not be called afterwards. A coordinator that has
  /// no successor waits for the others to leave, at most for `rendezvous_limits::close`.
  /// Errors: none.
  task<void> leave(departure how);
  /// Closes the run for all nodes. Errors: rendezvous_error `no_coordinator` if no
  /// coordinator has heard of it within `rendezvous_limits::close`.
  task<void> close();

  /// Says whether the run was open when a coordinator was first heard; if not, this node
  /// came to a run that was over.
  [[nodiscard]] bool was_open() const noexcept;
  /// Returns this node's id.
  [[nodiscard]] const std::string& id() const noexcept;
  /// Says whether this agent coordinates.
  [[nodiscard]] bool is_coordinator() const noexcept;

 private:
  class agent;
  task<void> run_task(task<void> body);

  std::unique_ptr<agent> agent_;
};

}  // namespace manyworlds::inline v0
