#include "mpmd/placement_bundles.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_map>

namespace manyworlds::inline v0::detail {

namespace {

/// Sets of which any two can become one.
class joined_sets {
 public:
  explicit joined_sets(std::size_t items) : parent_(items) {
    std::iota(parent_.begin(), parent_.end(), std::uint32_t{0});
  }
  /// Returns the least item of the set, which names it.
  [[nodiscard]] std::uint32_t set_of(std::uint32_t item) {
    while (parent_[item] != item) {
      parent_[item] = parent_[parent_[item]];
      item = parent_[item];
    }
    return item;
  }
  void join(std::uint32_t a, std::uint32_t b) {
    a = set_of(a);
    b = set_of(b);
    parent_[std::max(a, b)] = std::min(a, b);
  }

 private:
  std::vector<std::uint32_t> parent_;
};

/// Joins items that are given under one key.
class joined_by_key {
 public:
  explicit joined_by_key(joined_sets& sets) : sets_(sets) {}
  void add(std::uint32_t kind, std::uint32_t number, std::uint32_t item) {
    const std::uint64_t key = std::uint64_t{kind} << 32 | number;
    const auto [first, is_new] = first_.emplace(key, item);
    if (!is_new) sets_.join(first->second, item);
  }

 private:
  joined_sets& sets_;
  std::unordered_map<std::uint64_t, std::uint32_t> first_;
};

class bundle_maker {
 public:
  bundle_maker(const placement_problem& problem, std::span<const instance_place> taken,
               const std::vector<const graph_place*>& rules)
      : problem_(problem),
        taken_(taken),
        rules_(rules),
        wanted_(static_cast<std::uint32_t>(problem.wanted.size())),
        sets_(wanted_ + taken.size()),
        shares_(wanted_ + taken.size()) {}

  [[nodiscard]] bundled_instances make() {
    join();
    gather();
    for (placement_bundle& bundle : bundles_) finish(bundle);
    bundled_instances all{std::move(bundles_), {}};
    all.label_sets.resize(label_sets_.size());
    for (const auto& [labels, number] : label_sets_) all.label_sets[number] = labels;
    return all;
  }

 private:
  /// Wanted ones come first among the items, then those that stand.
  [[nodiscard]] const instance_id& id_of(std::uint32_t item) const {
    return item < wanted_ ? problem_.wanted[item] : problem_.standing[item - wanted_].id;
  }

  void join() {
    const std::vector<graph_role>& roles = problem_.graph->roles();
    const auto role_count = static_cast<std::uint32_t>(roles.size());
    // By role: the rules that keep it together with others, and which are of GPUs.
    std::vector<std::vector<std::uint32_t>> together(roles.size());
    for (std::uint32_t i = 0; i < rules_.size(); ++i) {
      if (rules_[i]->rule != place_rule::together) continue;
      for (const std::string& name : rules_[i]->roles) {
        const std::uint32_t role = problem_.number_of_role(name);
        if (role != none) together[role].push_back(i);
      }
    }
    joined_by_key by_node(sets_);
    joined_by_key by_gpu(shares_);
    for (std::uint32_t item = 0; item < wanted_ + taken_.size(); ++item) {
      const instance_id& id = id_of(item);
      const std::uint32_t role = role_of(item);
      if (role == none) continue;
      const std::uint32_t group = std::max(roles[role].per_group, 1U);
      if (group > 1) by_node.add(role, id.index / group, item);
      for (const std::uint32_t rule : together[role]) {
        by_node.add(role_count + rule, id.index, item);
        if (rules_[rule]->level == place_level::gpu) by_gpu.add(rule, id.index, item);
      }
    }
  }

  [[nodiscard]] std::uint32_t role_of(std::uint32_t item) const {
    return item < wanted_ ? problem_.wanted_roles[item]
                          : problem_.standing[item - wanted_].role;
  }

  void gather() {
    std::unordered_map<std::uint32_t, std::uint32_t> bundle_of_set;
    for (std::uint32_t item = 0; item < wanted_ + taken_.size(); ++item) {
      const std::uint32_t set = sets_.set_of(item);
      auto found = bundle_of_set.find(set);
      if (found == bundle_of_set.end()) {
        // What stands without any that is wanted is no bundle.
        if (item >= wanted_) continue;
        found = bundle_of_set.emplace(set, bundles_.size()).first;
        bundles_.emplace_back();
      }
      placement_bundle& bundle = bundles_[found->second];
      if (item < wanted_) {
        bundle.wanted.push_back(item);
      } else {
        fix(bundle, item - wanted_);
      }
      share(bundle, item);
    }
  }

  void fix(placement_bundle& bundle, std::uint32_t standing) {
    const standing_instance& one = problem_.standing[standing];
    const std::string first = problem_.wanted[bundle.wanted.front()].text();
    if (one.node == none) {
      throw placement_error(
          fmt::format("{} cannot be placed: it belongs on one node with {}, which stands "
                      "on {}; no such "
                      "node is there",
                      first, one.id.text(), taken_[standing].node));
    }
    if (bundle.fixed_to != none && bundle.fixed_to != one.node) {
      throw placement_error(fmt::format(
          "{} cannot be placed: it belongs on one node with {}, which stands on {}, and "
          "with {}, which stands on {}",
          first, problem_.standing[bundle.standing.front()].id.text(),
          problem_.name_of_node(bundle.fixed_to), one.id.text(), taken_[standing].node));
    }
    bundle.fixed_to = one.node;
    bundle.standing.push_back(standing);
  }

  void share(placement_bundle& bundle, std::uint32_t item) {
    const std::uint32_t set = shares_.set_of(item);
    const auto [found, is_new] =
        share_of_set_.emplace(set, static_cast<std::uint32_t>(bundle.shares.size()));
    if (is_new) bundle.shares.emplace_back();
    gpu_share& share = bundle.shares[found->second];
    if (item < wanted_) {
      share.wanted.push_back(item);
      share.gpus = std::max(share.gpus, problem_.role_of(item).needs.gpus);
      return;
    }
    share.standing.push_back(item - wanted_);
    const std::vector<std::string>& gpus = taken_[item - wanted_].gpus;
    if (gpus.size() > share.held.size()) share.held = gpus;
  }

  void finish(placement_bundle& bundle) {
    std::vector<std::string> labels;
    for (const std::uint32_t item : bundle.wanted) {
      const role_needs& needs = problem_.role_of(item).needs;
      bundle.need += {needs.cpus, needs.memory, 0};
      if (needs.cpus == 0) ++bundle.sharers;
      labels.insert(labels.end(), needs.labels.begin(), needs.labels.end());
    }
    std::sort(labels.begin(), labels.end());
    labels.erase(std::unique(labels.begin(), labels.end()), labels.end());
    bundle.labels = number_of(label_sets_, std::move(labels));

    // By role and share, both numbered within the bundle alone.
    std::vector<std::pair<std::uint32_t, std::uint32_t>> form;
    std::erase_if(bundle.shares, [](const gpu_share& each) { return each.gpus == 0; });
    for (std::uint32_t i = 0; i < bundle.shares.size(); ++i) {
      const gpu_share& each = bundle.shares[i];
      if (each.gpus > each.held.size()) bundle.need.gpus += each.gpus - each.held.size();
      if (each.wanted.size() < 2) continue;
      for (const std::uint32_t item : each.wanted)
        form.emplace_back(role_of(item), i + 1);
    }
    for (const std::uint32_t item : bundle.wanted) form.emplace_back(role_of(item), 0);
    std::sort(form.begin(), form.end());
    bundle.form = number_of(forms_, std::move(form));
  }

  /// Returns the number of a key, which is counted if it is new.
  template <class Key>
  static std::uint32_t number_of(std::map<Key, std::uint32_t>& known, Key key) {
    const auto next = static_cast<std::uint32_t>(known.size());
    return known.emplace(std::move(key), next).first->second;
  }

  const placement_problem& problem_;
  std::span<const instance_place> taken_;
  const std::vector<const graph_place*>& rules_;
  std::uint32_t wanted_;
  joined_sets sets_;
  joined_sets shares_;
  std::unordered_map<std::uint32_t, std::uint32_t> share_of_set_;
  std::map<std::vector<std::string>, std::uint32_t> label_sets_;
  std::map<std::vector<std::pair<std::uint32_t, std::uint32_t>>, std::uint32_t> forms_;
  std::vector<placement_bundle> bundles_;
};

}  // namespace

bundled_instances make_bundles(const placement_problem& problem,
                               std::span<const instance_place> taken,
                               const std::vector<const graph_place*>& rules) {
  return bundle_maker(problem, taken, rules).make();
}

}  // namespace manyworlds::inline v0::detail
