#include "manyworlds/launch/round.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <stdexcept>
#include <utility>

#if __has_include(<nlohmann/json.hpp>)
#include <nlohmann/json.hpp>
#define MANYWORLDS_HAS_JSON 1
#endif

namespace manyworlds::inline v0 {

namespace {

constexpr std::size_t longest_round = 1 << 20;
constexpr std::size_t most_nodes = 16 * 1024;
constexpr std::size_t longest_id = 64;
constexpr std::size_t longest_host = 255;
constexpr std::size_t longest_role = 64;
constexpr int most_slots = 4096;

#if MANYWORLDS_HAS_JSON

[[noreturn]] void refuse_round(const std::string& why) {
  throw std::invalid_argument("not a round: " + why);
}

std::string text_field(const nlohmann::json& in, const char* name, std::size_t longest) {
  const auto found = in.find(name);
  if (found == in.end() || !found->is_string())
    refuse_round(fmt::format("\"{}\" is no text", name));
  const auto& text = found->get_ref<const std::string&>();
  if (text.size() > longest) {
    refuse_round(fmt::format("\"{}\" has {} bytes, at most {} are taken", name,
                             text.size(), longest));
  }
  return text;
}

std::uint64_t number_field(const nlohmann::json& in, const char* name,
                           std::uint64_t most) {
  const auto found = in.find(name);
  if (found == in.end() || !found->is_number_unsigned())
    refuse_round(fmt::format("\"{}\" is no number", name));
  const auto number = found->get<std::uint64_t>();
  if (number > most) refuse_round(fmt::format("\"{}\" is {}", name, number));
  return number;
}

round_node node_from(const nlohmann::json& in) {
  if (!in.is_object()) refuse_round("a node is no object");
  round_node node;
  node.id = text_field(in, "id", longest_id);
  node.host = text_field(in, "host", longest_host);
  node.role = text_field(in, "role", longest_role);
  node.place = static_cast<int>(number_field(in, "place", most_nodes));
  node.slots = static_cast<int>(number_field(in, "slots", most_slots));
  return node;
}

#else

[[noreturn]] void refuse_without_json() {
  throw std::runtime_error(
      "this build has no nlohmann-json, so it cannot agree on rounds");
}

#endif

}  // namespace

void round::assign_ranks() {
  std::sort(nodes.begin(), nodes.end(),
            [](const round_node& a, const round_node& b) { return a.place < b.place; });
  int next = 0;
  std::map<std::string, int> next_of_role;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    round_node& node = nodes[i];
    node.rank = static_cast<int>(i);
    node.first_rank = std::exchange(next, next + node.slots);
    int& of_role = next_of_role[node.role];
    node.first_role_rank = std::exchange(of_role, of_role + node.slots);
  }
  for (round_node& node : nodes) node.role_size = next_of_role[node.role];
}

int round::size() const noexcept {
  return std::accumulate(
      nodes.begin(), nodes.end(), 0,
      [](int sum, const round_node& node) { return sum + node.slots; });
}

const round_node* round::find(std::string_view id) const noexcept {
  const auto found = std::find_if(nodes.begin(), nodes.end(),
                                  [&](const round_node& n) { return n.id == id; });
  return found == nodes.end() ? nullptr : &*found;
}

#if MANYWORLDS_HAS_JSON

std::string round::to_json() const {
  nlohmann::json out{{"run", run}, {"round", number}, {"nodes", nlohmann::json::array()}};
  for (const round_node& node : nodes) {
    out["nodes"].push_back({{"id", node.id},
                            {"host", node.host},
                            {"place", node.place},
                            {"role", node.role},
                            {"slots", node.slots}});
  }
  // Names may hold any bytes; what is no UTF-8 is replaced, not refused.
  return out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

round round::from_json(std::string_view text) {
  if (text.size() > longest_round) {
    refuse_round(
        fmt::format("{} bytes, at most {} are taken", text.size(), longest_round));
  }
  const nlohmann::json in = nlohmann::json::parse(text, nullptr, false);
  if (!in.is_object()) refuse_round("it is no JSON object");
  round r;
  r.run = text_field(in, "run", longest_host);
  r.number = number_field(in, "round", std::uint64_t{1} << 62);
  const auto nodes = in.find("nodes");
  if (nodes == in.end() || !nodes->is_array()) refuse_round("it has no list of nodes");
  if (nodes->size() > most_nodes)
    refuse_round(
        fmt::format("{} nodes, at most {} are taken", nodes->size(), most_nodes));
  std::set<int> places;
  std::set<std::string> ids;
  for (const nlohmann::json& each : *nodes) {
    r.nodes.push_back(node_from(each));
    if (!places.insert(r.nodes.back().place).second ||
        !ids.insert(r.nodes.back().id).second) {
      refuse_round("two nodes have one place or one id");
    }
  }
  r.assign_ranks();
  return r;
}

#else

std::string round::to_json() const { refuse_without_json(); }
round round::from_json(std::string_view) { refuse_without_json(); }

#endif

}  // namespace manyworlds::inline v0
