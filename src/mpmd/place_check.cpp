#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "mpmd/graph_check.hpp"
#include "mpmd/spoken_text.hpp"

namespace manyworlds::inline v0::detail {

namespace {

/// Returns "place[1], together at level node".
std::string spoken_rule(const job_graph& graph, std::size_t index) {
  const graph_place& place = graph.places()[index];
  return fmt::format("place[{}], {} at level {}", index, name_of(place.rule),
                     name_of(place.level));
}

/// Checks one rule of placement by itself.
class place_check {
 public:
  place_check(const graph_place& place, std::size_t index, check_notes& notes)
      : place_(place), notes_(notes), path_(path_to("place", index)) {}

  void check() {
    if (place_.roles.size() > most_roles) {
      return object("roles", fmt::format("{} roles, and a graph has at most {}",
                                         place_.roles.size(), most_roles));
    }
    check_roles();
    if (notes_.is_unsure(path_to(path_, "rule"))) return;
    if (!notes_.is_unsure(path_to(path_, "level"))) check_level();
    const bool is_of_several =
        place_.rule == place_rule::together || place_.rule == place_rule::apart;
    const std::set<std::string_view> all(place_.roles.begin(), place_.roles.end());
    if (is_of_several && all.size() == 1) {
      object("roles",
             fmt::format("{} is a rule for two roles or more{}", name_of(place_.rule),
                         place_.rule == place_rule::apart
                             ? "; spread is one for the instances of one"
                             : ""));
    }
    if (place_.rule == place_rule::together) check_counts();
  }

 private:
  void object(std::string_view field, std::string_view what) {
    notes_.object(path_to(path_, field), fmt::format("{}: {}", path_, what));
  }

  /// Objects to one of the roles.
  void object(std::size_t index, std::string_view what) {
    notes_.object(
        path_to(path_to(path_, "roles"), index),
        fmt::format("{}: role {} {}", path_, in_quotes(place_.roles[index]), what));
  }

  void check_roles() {
    if (place_.roles.empty()) return object("roles", "roles are missing");
    std::set<std::string_view> seen;
    for (std::size_t i = 0; i < place_.roles.size(); ++i) {
      const std::string& name = place_.roles[i];
      const std::string at = path_to(path_to(path_, "roles"), i);
      const bool is_first = seen.insert(name).second;
      const bool is_there = notes_.need_role(at, path_ + ": ", name) != nullptr;
      if (is_there && !is_first) object(i, "stands there twice");
    }
  }

  void check_level() {
    if (place_.level == place_level::node) return;
    if (place_.rule == place_rule::pack || place_.rule == place_rule::spread) {
      return object("level",
                    fmt::format("{} is a rule for nodes: a GPU is shared by roles "
                                "that are together on it, and by no others",
                                name_of(place_.rule)));
    }
    std::uint32_t gpus = 0;
    for (std::size_t i = 0; i < place_.roles.size(); ++i) {
      const std::string& name = place_.roles[i];
      const graph_role* const role = notes_.find(name);
      const std::string needs = path_to(path_to("role", name), "needs");
      if (role == nullptr || notes_.is_unsure(path_to(needs, "gpus"))) continue;
      if (role->needs.gpus == 0) {
        object(i, "needs no GPU");
      } else if (gpus == 0) {
        gpus = role->needs.gpus;
      } else if (place_.rule == place_rule::together && gpus != role->needs.gpus) {
        object(i, fmt::format("needs {} GPUs, and is together with one that needs {}",
                              role->needs.gpus, gpus));
      }
    }
  }

  /// Instances of equal index share a node, so none is without a partner.
  void check_counts() {
    const graph_role* first = nullptr;
    for (const std::string& name : place_.roles) {
      const graph_role* const role = notes_.find(name);
      if (role == nullptr || !notes_.is_count_sure(*role)) continue;
      if (first == nullptr) {
        first = role;
      } else if (role->counts.start != first->counts.start ||
                 role->counts.max != first->counts.max) {
        object("roles",
               fmt::format("roles that are together have equal counts, and {} has {} up "
                           "to {}, {} has {} up to {}",
                           in_quotes(first->name), first->counts.start, first->counts.max,
                           in_quotes(name), role->counts.start, role->counts.max));
      }
    }
  }

  const graph_place& place_;
  check_notes& notes_;
  std::string path_;
};

/// Finds rules that no placement can keep at once.
class conflict_check {
 public:
  conflict_check(const job_graph& graph, check_notes& notes)
      : graph_(graph), notes_(notes) {
    for (const graph_place& each : graph.places())
      roles_.emplace_back(each.roles.begin(), each.roles.end());
  }

  void check() {
    for (std::size_t b = 0; b < graph_.places().size(); ++b)
      for (std::size_t a = 0; a < b; ++a) compare(a, b);
  }

 private:
  void object(std::size_t index, const std::string& field, const std::string& what) {
    notes_.object(path_to(path_to("place", index), field),
                  fmt::format("place[{}]: {}", index, what));
  }

  [[nodiscard]] const graph_place& rule(std::size_t index) const {
    return graph_.places()[index];
  }

  [[nodiscard]] bool is_sure(std::size_t index) const {
    const std::string path = path_to("place", index);
    return !notes_.is_unsure(path_to(path, "rule")) &&
           !notes_.is_unsure(path_to(path, "level"));
  }

  void compare(std::size_t a, std::size_t b) {
    if (!is_sure(a) || !is_sure(b)) return;
    const graph_place& first = rule(a);
    const graph_place& second = rule(b);
    const auto are = [&](place_rule x, place_rule y) {
      return (first.rule == x && second.rule == y) ||
             (first.rule == y && second.rule == x);
    };
    std::vector<std::string_view> common;
    std::ranges::set_intersection(roles_[a], roles_[b], std::back_inserter(common));
    if (common.empty()) return;
    if (are(place_rule::together, place_rule::together)) {
      if (first.level == second.level && roles_[a] != roles_[b])
        object(b, "roles",
               fmt::format("role {} is in {} already", in_quotes(common.front()),
                           spoken_rule(graph_, a)));
    } else if (are(place_rule::together, place_rule::apart)) {
      if (common.size() > 1 && excludes(a, b, place_rule::apart)) refuse(a, b, common);
    } else if (are(place_rule::pack, place_rule::spread)) {
      refuse(a, b, common);
    } else if (are(place_rule::exclusive, place_rule::together)) {
      const bool is_first = first.rule == place_rule::exclusive;
      const bool has_others = !std::ranges::includes(is_first ? roles_[a] : roles_[b],
                                                     is_first ? roles_[b] : roles_[a]);
      if (has_others && excludes(a, b, place_rule::exclusive)) refuse(a, b, common);
    }
  }

  /// Returns whether the one of two rules that parts roles parts them where the other one
  /// brings them together. On one GPU means on one node too.
  [[nodiscard]] bool excludes(std::size_t a, std::size_t b, place_rule parting) const {
    const graph_place& parts = rule(a).rule == parting ? rule(a) : rule(b);
    const graph_place& joins = rule(a).rule == parting ? rule(b) : rule(a);
    return parts.level == place_level::node || joins.level == place_level::gpu;
  }

  void refuse(std::size_t a, std::size_t b, const std::vector<std::string_view>& common) {
    std::string names;
    for (const std::string_view name : common)
      names += (names.empty() ? "" : ", ") + in_quotes(name);
    object(b, "rule",
           fmt::format("{} contradicts {}, for {}", name_of(rule(b).rule),
                       spoken_rule(graph_, a), names));
  }

  const job_graph& graph_;
  check_notes& notes_;
  std::vector<std::set<std::string_view>> roles_;  ///< of each rule
};

}  // namespace

void check_places(const job_graph& graph, check_notes& notes) {
  for (std::size_t i = 0; i < graph.places().size(); ++i)
    place_check(graph.places()[i], i, notes).check();
  conflict_check(graph, notes).check();
}

}  // namespace manyworlds::inline v0::detail
