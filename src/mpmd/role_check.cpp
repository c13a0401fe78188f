#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>

#include "manyworlds/world/view.hpp"
#include "mpmd/graph_check.hpp"
#include "mpmd/graph_fields.hpp"
#include "mpmd/spoken_text.hpp"
#include "mpmd/start_order.hpp"

namespace manyworlds::inline v0::detail {

namespace {

/// An instance that ends takes these together, and its job waits for it.
constexpr duration longest_end = std::chrono::hours(24);
constexpr std::size_t longest_label = 63;

/// Checks one role.
class role_check {
 public:
  role_check(const graph_role& role, check_notes& notes)
      : role_(role),
        notes_(notes),
        path_(path_to("role", role.name)),
        speaker_(fmt::format("role {}: ", in_quotes(role.name))) {}

  void check() {
    check_name(notes_, path_, "role", role_.name);
    check_command();
    check_variables();
    if (notes_.is_count_sure(role_)) check_counts();
    check_needs();
    check_restart();
    check_others();
    check_times();
  }

 private:
  void object(std::string_view field, std::string_view what) {
    notes_.object(path_to(path_, field), fmt::format("{}{}", speaker_, what));
  }

  void check_command() {
    const auto& command = role_.command;
    if (command.empty()) return object("run", "run names no program");
    const std::string at = path_to(path_, "run");
    for (std::size_t i = 0; i < command.size(); ++i) {
      const char* const wrong = i == 0 && command[i].empty() ? ", the program, is empty"
                                : !is_plain_text(command[i])
                                    ? " is no UTF-8, or has a zero"
                                    : nullptr;
      if (wrong == nullptr) continue;
      notes_.object(path_to(at, i), fmt::format("{}run[{}]{}", speaker_, i, wrong));
    }
    if (!is_plain_text(role_.folder))
      object("folder", "folder is no UTF-8, or has a zero");
  }

  /// What a process is given for itself, whatever its role sets.
  [[nodiscard]] bool is_given(std::string_view name) const {
    return name.starts_with("MANYWORLDS_") || name == "ROLE_NAME" ||
           name == "ROLE_RANK" || name == "ROLE_WORLD_SIZE" ||
           (name == "CUDA_VISIBLE_DEVICES" && role_.needs.gpus > 0);
  }

  void check_variables() {
    const std::string at = path_to(path_, "env");
    for (const auto& [name, value] : role_.variables) {
      const auto refuse = [&, &variable = name](const char* why) {
        notes_.object(path_to(at, variable),
                      fmt::format("{}env: {} {}", speaker_, in_quotes(variable), why));
      };
      const bool is_name = !name.empty() && (name[0] < '0' || name[0] > '9') &&
                           std::ranges::all_of(name, [](char c) {
                             return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                                    (c >= '0' && c <= '9') || c == '_';
                           });
      if (!is_name) {
        refuse("is no name of a variable: letters, digits and '_', no digit first");
      } else if (is_given(name)) {
        refuse("is set by the agent");
      } else if (!is_plain_text(value)) {
        refuse("has a value that is no UTF-8, or has a zero");
      }
    }
  }

  void check_counts() {
    const auto [min, start, max] = role_.counts;
    const std::string at = path_to(path_, "count");
    if (max > most_instances) {
      notes_.object(path_to(at, "max"),
                    fmt::format("{}count.max must be at most {}, is {}", speaker_,
                                most_instances, max));
    }
    if (min > start) {
      notes_.object(path_to(at, "min"), fmt::format("{}count.min is {}, above start, {}",
                                                    speaker_, min, start));
    }
    if (start > max) {
      notes_.object(
          path_to(at, "start"),
          fmt::format("{}count.start is {}, above max, {}", speaker_, start, max));
    }
    check_groups(start, max);
    if (role_.kind != role_kind::spmd) return;
    if (start == 1)
      object("count",
             "a session needs a controller and a worker, so 2 instances or more");
    if (max > static_cast<std::uint32_t>(world_view::largest_size)) {
      object("count", fmt::format("a session has at most {} instances, and max is {}",
                                  world_view::largest_size, max));
    }
  }

  void check_groups(std::uint32_t start, std::uint32_t max) {
    const std::uint32_t group = role_.per_group;
    if (group == 0) return object("per_group", "per_group must be 1 or more");
    if (start % group != 0) {
      object("per_group", fmt::format("per_group, {}, does not divide the count at the "
                                      "start, {}",
                                      group, start));
    } else if (max % group != 0) {
      object("per_group",
             fmt::format("per_group, {}, does not divide the largest count, {}", group,
                         max));
    }
  }

  /// Labels of nodes stand in lists, where a comma ends them.
  static bool is_of_label(char c) noexcept { return c > ' ' && c <= '~' && c != ','; }

  void check_needs() {
    const std::string at = path_to(path_, "needs");
    const auto bound = [&](const char* name, std::uint32_t is, std::uint32_t most) {
      if (is > most) {
        notes_.object(path_to(at, name),
                      fmt::format("{}needs.{} must be at most {}, is {}", speaker_, name,
                                  most, is));
      }
    };
    bound("cpus", role_.needs.cpus, most_cpus);
    bound("gpus", role_.needs.gpus, most_gpus);
    std::set<std::string_view> seen;
    for (std::size_t i = 0; i < role_.needs.labels.size(); ++i) {
      const std::string& label = role_.needs.labels[i];
      const bool is_label = !label.empty() && label.size() <= longest_label &&
                            std::ranges::all_of(label, is_of_label);
      const char* const wrong = !is_label ? "is no label: 1 to 63 characters of ASCII "
                                            "that print, without blanks and commas"
                                : !seen.insert(label).second ? "stands there twice"
                                                             : nullptr;
      if (wrong == nullptr) continue;
      notes_.object(
          path_to(path_to(at, "labels"), i),
          fmt::format("{}needs.labels: {} {}", speaker_, in_quotes(label), wrong));
    }
  }

  void check_restart() {
    check_budget(notes_, path_to(path_, "restart"), speaker_, role_.budget);
    if (role_.is_driver && role_.restarts == restart_when::always) {
      notes_.object(
          path_to(path_to(path_, "restart"), "when"),
          speaker_ + "a driver that is restarted always never ends, nor does its job");
    }
  }

  void check_others() {
    if (role_.after_roles.size() > most_roles) {
      return object("after",
                    fmt::format("after names {} roles, and a graph has at most {}",
                                role_.after_roles.size(), most_roles));
    }
    std::set<std::string_view> seen;
    for (std::size_t i = 0; i < role_.after_roles.size(); ++i) {
      const std::string& name = role_.after_roles[i];
      const std::string at = path_to(path_to(path_, "after"), i);
      const bool is_there = notes_.need_role(at, speaker_ + "after: ", name) != nullptr;
      if (is_there && !seen.insert(name).second)
        notes_.object(
            at, fmt::format("{}after: {} stands there twice", speaker_, in_quotes(name)));
    }
    if (role_.controller_role.empty()) return;
    const graph_role* const controller = notes_.need_role(
        path_to(path_, "controller"), speaker_ + "controller: ", role_.controller_role);
    if (controller != nullptr && controller->counts.max == 0 &&
        notes_.is_count_sure(*controller)) {
      object("controller", fmt::format("controller: role {} has no instance that could "
                                       "be asked",
                                       in_quotes(controller->name)));
    }
  }

  void check_times() {
    const auto bound = [&](const char* name, duration is, duration least, duration most) {
      if (is < least) {
        object(name,
               fmt::format("{} must be {}", name,
                           least == duration::zero() ? "zero or more" : "above zero"));
      } else if (is > most) {
        object(name, fmt::format("{} must be at most 24h", name));
      }
    };
    constexpr duration shortest{1};
    bound("ready_within", role_.ready_within, shortest, duration::max());
    bound("drain", role_.drain_for, duration::zero(), longest_end);
    bound("grace", role_.grace, duration::zero(), longest_end);
    bound("hang_after", role_.hang_after, duration::zero(), duration::max());
  }

  const graph_role& role_;
  check_notes& notes_;
  std::string path_;
  std::string speaker_;
};

/// Returns "a -> b -> a".
std::string drawn(const job_graph& graph, const std::vector<std::size_t>& cycle) {
  std::string made;
  for (const std::size_t i : cycle) made += graph.roles()[i].name + " -> ";
  return printable(made + graph.roles()[cycle.front()].name);
}

void check_cycles(const job_graph& graph, check_notes& notes) {
  const auto& roles = graph.roles();
  for (const auto& cycle : cycles_of(after_lists(graph))) {
    notes.object(path_to(path_to("role", roles[cycle.front()].name), "after"),
                 fmt::format("after: {} is a circle, so that none of these could start",
                             drawn(graph, cycle)));
  }
  std::vector<std::vector<std::size_t>> asks(roles.size());
  for (std::size_t i = 0; i < roles.size(); ++i) {
    for (std::size_t j = 0; j < roles.size(); ++j)
      if (!roles[i].controller_role.empty() && roles[j].name == roles[i].controller_role)
        asks[i].push_back(j);
  }
  for (const auto& cycle : cycles_of(asks)) {
    notes.object(
        path_to(path_to("role", roles[cycle.front()].name), "controller"),
        fmt::format("controller: {} is a circle, so that the failure of one could ask "
                    "for itself",
                    drawn(graph, cycle)));
  }
}

void check_drivers(const job_graph& graph, check_notes& notes) {
  std::uint64_t instances = 0;
  const graph_role* driver = nullptr;
  for (const graph_role& each : graph.roles()) {
    if (!each.is_driver) continue;
    if (driver == nullptr) driver = &each;
    // A count that was not read may be any.
    instances += notes.is_count_sure(each) ? each.counts.start : 1;
  }
  if (driver == nullptr || instances > 0) return;
  notes.object(path_to(path_to("role", driver->name), "driver"),
               fmt::format("role {}: no driver has an instance at the start, so the job "
                           "would end at once",
                           in_quotes(driver->name)));
}

void check_sum(const job_graph& graph, check_notes& notes) {
  std::uint64_t sum = 0;
  // A role that is too large by itself has been objected to.
  for (const graph_role& each : graph.roles())
    if (each.counts.max <= most_instances) sum += each.counts.max;
  if (sum <= most_instances) return;
  notes.object("role", fmt::format("the roles have up to {} instances, and a job has at "
                                   "most {}",
                                   sum, most_instances));
}

}  // namespace

void check_roles(const job_graph& graph, check_notes& notes) {
  if (graph.roles().empty()) return notes.object("role", "the job has no role");
  std::set<std::string_view> names;
  for (const graph_role& each : graph.roles()) {
    role_check(each, notes).check();
    if (!names.insert(each.name).second)
      notes.object(path_to("role", each.name),
                   fmt::format("two roles are named {}", in_quotes(each.name)));
  }
  check_sum(graph, notes);
  check_cycles(graph, notes);
  check_drivers(graph, notes);
}

}  // namespace manyworlds::inline v0::detail
