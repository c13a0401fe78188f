#include "launch/torchrun_keys.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <stdexcept>

#include "launch/coordinator.hpp"

#if __has_include(<nlohmann/json.hpp>)
#include <nlohmann/json.hpp>
#define MANYWORLDS_HAS_JSON 1
#endif

namespace manyworlds::inline v0::detail {

std::string torchrun_keys::role(int place) const {
  return fmt::format("{}role_info/{}", prefix, place);
}

std::string torchrun_keys::ranks(int place) const {
  return fmt::format("{}assigned_ranks/{}", prefix, place);
}

std::string torchrun_keys::finished() const {
  return prefix + "agent/terminal_state/num_members";
}

std::string torchrun_keys::all_finished() const {
  return prefix + "agent/terminal_state/last_member";
}

#if MANYWORLDS_HAS_JSON

namespace {

std::string text_of_role(const nlohmann::json& in, const char* name,
                         std::string_view otherwise) {
  const auto found = in.find(name);
  if (found == in.end() || !found->is_string()) return std::string(otherwise);
  return found->get<std::string>();
}

std::int64_t number_of_role(const nlohmann::json& in, const char* name) {
  const auto found = in.find(name);
  // -1 is no rank and no number of workers.
  return found != in.end() && found->is_number_integer() ? found->get<std::int64_t>()
                                                         : -1;
}

}  // namespace

std::string torchrun_role(const round_node& node) {
  return nlohmann::json{{"role", node.role},
                        {"rank", node.place},
                        {"local_world_size", node.slots},
                        {"id", node.id},
                        {"host", node.host}}
      .dump();
}

round_node node_of_torchrun_role(std::string_view text, int place) {
  const nlohmann::json in = nlohmann::json::parse(text, nullptr, false);
  if (!in.is_object() || number_of_role(in, "rank") != place) {
    throw std::invalid_argument(fmt::format(
        "what node {} says of itself is no JSON object with its rank", place));
  }
  const std::int64_t slots = number_of_role(in, "local_world_size");
  const bool is_number = slots >= 0 && slots <= std::numeric_limits<int>::max();
  round_node node;
  node.place = place;
  node.slots = is_number ? static_cast<int>(slots) : 0;
  node.role = text_of_role(in, "role", "");
  node.id = text_of_role(in, "id", fmt::format("{}{}", torchrun_id, place));
  node.host = text_of_role(in, "host", "unknown");
  const std::string wrong = wrong_with(node);
  if (!wrong.empty()) {
    throw std::invalid_argument(
        fmt::format("what node {} says of itself: {}", place, wrong));
  }
  return node;
}

std::string torchrun_ranks(const round& r, const round_node& node) {
  return nlohmann::json{node.first_rank, r.size(), node.first_role_rank, node.role_size}
      .dump();
}

bool are_same_ranks(std::string_view one, std::string_view other) {
  const nlohmann::json a = nlohmann::json::parse(one, nullptr, false);
  return a.is_array() && a == nlohmann::json::parse(other, nullptr, false);
}

#else

namespace {

[[noreturn]] void refuse_torchrun() {
  throw std::runtime_error(
      "this build has no nlohmann-json, so it cannot meet with torchrun");
}

}  // namespace

std::string torchrun_role(const round_node&) { refuse_torchrun(); }
round_node node_of_torchrun_role(std::string_view, int) { refuse_torchrun(); }
std::string torchrun_ranks(const round&, const round_node&) { refuse_torchrun(); }
bool are_same_ranks(std::string_view, std::string_view) { refuse_torchrun(); }

#endif

}  // namespace manyworlds::inline v0::detail
