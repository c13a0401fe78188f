// Job graph: which programs a job runs, how many of each, where, and between which of
// them there are worlds.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "manyworlds/detail/config.hpp"
#include "manyworlds/launch/restart_policy.hpp"
#include "manyworlds/mpmd/graph_error.hpp"
#include "manyworlds/time.hpp"

namespace manyworlds::inline v0 {

/// How the instances of two roles are connected.
enum class edge_kind : std::uint8_t {
  bulk,   ///< by worlds, for data
  calls,  ///< by questions and answers: `from` asks, `to` answers
};

/// Which instances share a world of a bulk edge.
enum class edge_shape : std::uint8_t {
  pairs,    ///< a world of two for each instance of the one role with each of the other
  aligned,  ///< a world of two for each index that both roles have
  group,    ///< one world of all instances of both roles
};
/// Means `edge_shape::pairs`.
inline constexpr edge_shape pairs = edge_shape::pairs;
/// Means `edge_shape::aligned`.
inline constexpr edge_shape aligned = edge_shape::aligned;
/// Means `edge_shape::group`.
inline constexpr edge_shape group = edge_shape::group;

/// What the loss of an instance means to those at the other end of an edge.
enum class edge_loss : std::uint8_t {
  reform,            ///< they keep their state, and the edge's worlds form again
  restart_together,  ///< they are started again with it: they are of its region
};

/// How roles are placed with regard to each other.
enum class place_rule : std::uint8_t {
  together,   ///< instances of equal index share a node, or a GPU
  apart,      ///< instances of different roles share none
  pack,       ///< on as few nodes as they fit; at level node alone
  spread,     ///< instances on as many nodes as there are, evenly; at level node alone
  exclusive,  ///< no instance of a role that is not listed shares one with these
};
/// What a rule of placement is about.
enum class place_level : std::uint8_t { node, gpu };

/// What an instance is.
enum class role_kind : std::uint8_t {
  processes,  ///< a process of its own
  /// The role is one SPMD session: instance 0 is its controller, the others are its
  /// workers.
  spmd,
};

/// When an instance counts as ready.
enum class ready_when : std::uint8_t {
  started,  ///< as soon as its process runs
  told,     ///< when it says so (`role_context::ready`)
};

/// Returns the name of the enumerator, as it stands in files.
[[nodiscard]] std::string_view name_of(edge_kind kind) noexcept;
[[nodiscard]] std::string_view name_of(edge_shape shape) noexcept;
[[nodiscard]] std::string_view name_of(edge_loss loss) noexcept;
[[nodiscard]] std::string_view name_of(place_rule rule) noexcept;
[[nodiscard]] std::string_view name_of(place_level level) noexcept;
[[nodiscard]] std::string_view name_of(role_kind kind) noexcept;
[[nodiscard]] std::string_view name_of(ready_when when) noexcept;

/// How many instances a role has. Zero is none: nothing is started then.
struct role_count {
  std::uint32_t min = 1;    ///< with fewer the job cannot go on
  std::uint32_t start = 1;  ///< at the start
  std::uint32_t max = 1;

  friend bool operator==(const role_count&, const role_count&) = default;
};

/// What one instance needs of its node.
struct role_needs {
  std::uint32_t cpus = 0;    ///< CPUs of its own; 0: any, shared with others
  std::uint64_t memory = 0;  ///< bytes
  std::uint32_t gpus = 0;
  std::vector<std::string> labels = {};  ///< which its node must have

  friend bool operator==(const role_needs&, const role_needs&) = default;
};

/// How often something may be tried again within a time, which moves on.
struct retry_budget {
  std::uint32_t tries = 3;
  /// The window.
  duration per = std::chrono::minutes(1);

  friend bool operator==(const retry_budget&, const retry_budget&) = default;
};

/// A role: one program, of which a job has a number of instances, "decode.0" and so on.
/// The fields may be set as they are, or by the functions, which chain.
struct graph_role {
  std::string name;
  /// The program and its arguments; no shell sees them.
  std::vector<std::string> command;
  std::string folder;  ///< the working folder; empty: the agent's
  std::map<std::string, std::string> variables;
  role_count counts;
  /// Instances of equal index / `per_group` stand on one node together. It divides the
  /// counts at the start and at most.
  std::uint32_t per_group = 1;
  role_needs needs;
  restart_when restarts = restart_when::on_failure;
  retry_budget budget;
  /// Roles that must be ready before an instance of this one starts.
  std::vector<std::string> after_roles;
  /// The job ends when all instances of its driver roles have ended.
  bool is_driver = false;
  role_kind kind = role_kind::processes;
  /// The controller: its instance 0 is asked before an instance of this role is replaced;
  /// empty: none. That is one that has ended, was not ready in time, stands still, or is
  /// lost with its node. It has a second to say that it copes (`role_context::
  /// on_failover`); otherwise the whole job is started again. While it is not ready
  /// itself it is not asked. Nor is it about a worker that a session's controller has let
  /// go.
  std::string controller_role;
  ready_when ready = ready_when::started;
  /// The time that an instance has to be ready.
  duration ready_within = std::chrono::minutes(10);
  /// The time that a workload has to leave in order when the job ends.
  duration drain_for = std::chrono::seconds(30);
  /// Between SIGTERM and SIGKILL.
  duration grace = std::chrono::seconds(10);
  /// An instance is hung when its progress stands still for this long; zero: never, but
  /// 60 s for roles that are a session.
  duration hang_after{};

  /// Sets the program and its arguments.
  graph_role& run(std::vector<std::string> program_and_arguments);
  /// Sets the working folder.
  graph_role& in_folder(std::string path);
  /// Sets a variable of the environment.
  graph_role& variable(std::string name, std::string value);
  /// Sets how many instances there are, always.
  graph_role& count(std::uint32_t all);
  /// Sets between which numbers there are, and with how many it starts.
  graph_role& count(std::uint32_t min, std::uint32_t start, std::uint32_t max);
  /// Sets what each instance needs.
  graph_role& need(role_needs what);
  /// Sets after which ends it is started again, and how often.
  graph_role& restart(restart_when when, retry_budget within = {});
  /// Adds a role that must be ready before.
  graph_role& after(std::string role);
  /// Lets the job end with it.
  graph_role& driver();
  /// Makes it one SPMD session.
  graph_role& session();
  /// Sets the role that is asked before a failover of this one.
  graph_role& controller(std::string role);
  /// Lets its instances say themselves when they are ready, within that time.
  graph_role& waits_until_ready(duration limit = std::chrono::minutes(10));

  friend bool operator==(const graph_role&, const graph_role&) = default;
};

/// An edge: declared communication between the instances of two roles, or of one.
struct graph_edge {
  std::string name;
  std::string from;
  std::string to;
  edge_kind kind = edge_kind::bulk;
  edge_shape shape = edge_shape::pairs;  ///< of bulk edges
  edge_loss on_loss = edge_loss::reform;

  /// Makes it an edge of worlds, in that shape.
  graph_edge& bulk(edge_shape of);
  /// Makes it an edge of questions and answers.
  graph_edge& calls();
  /// Puts both ends into one region.
  graph_edge& restart_together();

  friend bool operator==(const graph_edge&, const graph_edge&) = default;
};

/// A rule of placement for the instances of some roles.
struct graph_place {
  std::vector<std::string> roles;
  place_rule rule = place_rule::together;
  place_level level = place_level::node;

  friend bool operator==(const graph_place&, const graph_place&) = default;
};

/// The description of a job: roles, edges, placement and budgets. Made in C++, or read
/// from a file of TOML or JSON.
///
///     mw::job_graph g("serving");
///     g.role("decode").run({"./serving", "decode"}).count(1, 2, 4);
///     g.edge("kv", "prefill", "decode").bulk(mw::pairs);
///     for (const mw::graph_objection& o : g.check()) std::puts(o.text().c_str());
///
/// It is a value; nothing runs by it. Names keep their case. A name of a role or an edge
/// has 1 to 24 letters, digits, '-' and '_', and begins with a letter; `check` says where
/// the names of an edge's worlds would not fit into 63 bytes.
///
/// References that `role` and `edge` return hold until the next call of the same.
/// Thread: any, one at a time.
class job_graph {
 public:
  explicit job_graph(std::string name = {}) : name_(std::move(name)) {}

  /// Reads a file: JSON if its name ends with ".json", otherwise TOML. Errors:
  /// graph_error with all that is wrong in it, `check` included; std::system_error if it
  /// cannot be read, or has more than 4 MiB.
  [[nodiscard]] static job_graph from_file(const std::string& path);
  /// Reads a text of TOML, which errors call `source`. Errors: graph_error as above.
  [[nodiscard]] static job_graph from_toml(std::string_view text,
                                           std::string source = "job.toml");
  /// Reads a text of JSON. Errors: graph_error as above.
  [[nodiscard]] static job_graph from_json(std::string_view text,
                                           std::string source = "job.json");
  /// Returns it as text that reads back equal. What has its default is left out.
  /// Precondition: `check` finds nothing.
  [[nodiscard]] std::string to_toml() const;
  [[nodiscard]] std::string to_json() const;

  /// Returns the role of that name, which is added if there is none.
  graph_role& role(std::string_view name);
  /// Adds an edge.
  graph_edge& edge(std::string name, std::string from, std::string to);
  /// Adds a rule of placement.
  job_graph& place(std::vector<std::string> roles, place_rule rule,
                   place_level level = place_level::node);

  /// Returns all that is wrong, in the order of the file: none if it can be run.
  [[nodiscard]] std::vector<graph_objection> check() const;
  /// Returns the roles in an order in which they may start: each after those that it is
  /// `after`, otherwise as they stand. Precondition: `check` finds nothing.
  [[nodiscard]] std::vector<std::string> start_order() const;
  /// Returns the roles that restart with that one, itself included, as they stand: the
  /// closure over edges of `restart_together`. Precondition: as above.
  [[nodiscard]] std::vector<std::string> region_of(std::string_view role) const;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const std::vector<graph_role>& roles() const noexcept { return roles_; }
  [[nodiscard]] const std::vector<graph_edge>& edges() const noexcept { return edges_; }
  [[nodiscard]] const std::vector<graph_place>& places() const noexcept {
    return places_;
  }
  /// Returns the role of that name, or null.
  [[nodiscard]] const graph_role* find_role(std::string_view name) const noexcept;
  /// Returns the edge of that name, or null.
  [[nodiscard]] const graph_edge* find_edge(std::string_view name) const noexcept;

  /// How often all may be started again.
  retry_budget whole_job{3, std::chrono::minutes(10)};
  /// How long an agent goes on without a master; without a value, as long as it takes.
  /// One that has heard none for longer ends its instances, which have their roles'
  /// `drain` for that, and then itself, with an error. What it had is placed anew when a
  /// master is back. A store that is away is no absence: a master is heard without it.
  std::optional<duration> absence;

  /// Compares what is described, and not where it stood in a file.
  friend bool operator==(const job_graph& a, const job_graph& b) noexcept {
    return a.name_ == b.name_ && a.roles_ == b.roles_ && a.edges_ == b.edges_ &&
           a.places_ == b.places_ && a.whole_job == b.whole_job && a.absence == b.absence;
  }

 private:
  friend class detail::graph_reader;
  std::string name_;
  std::vector<graph_role> roles_;
  std::vector<graph_edge> edges_;
  std::vector<graph_place> places_;
  detail::graph_positions positions_;
};

}  // namespace manyworlds::inline v0
