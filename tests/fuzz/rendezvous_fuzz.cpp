// What nodes say of rounds is understood or refused, and says the same again; and
// whatever they do, in any order, the table of rounds keeps its rules.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "fuzz/input.hpp"
#include "launch/rendezvous_words.hpp"
#include "launch/round_table.hpp"
#include "launch/torchrun_keys.hpp"
#include "manyworlds/launch/round.hpp"

using namespace manyworlds;
using namespace std::chrono_literals;
using fuzzing::input;
using fuzzing::must;

namespace {

// --- rounds as text

void check_round(const round& r) {
  std::set<std::string> ids;
  int next = 0;
  int rank = 0;
  int place = -1;
  std::map<std::string, int> next_of_role;
  for (const round_node& node : r.nodes) {
    must(ids.insert(node.id).second);
    must(node.place > place);
    place = node.place;
    must(node.rank == rank++ && node.first_rank == next);
    next += node.slots;
    int& of_role = next_of_role[node.role];
    must(node.first_role_rank == of_role);
    of_role += node.slots;
    must(r.find(node.id) == &node);
  }
  for (const round_node& node : r.nodes) must(node.role_size == next_of_role[node.role]);
  must(r.size() == next);
}

void read_round(std::string_view text) {
  try {
    const round r = round::from_json(text);
    check_round(r);
    const std::string again = r.to_json();
    must(round::from_json(again).to_json() == again);
  } catch (const std::invalid_argument& e) {
    must(std::string_view(e.what()).starts_with("not a round: "));
  }
}

void read_torchrun(std::string_view text) {
  try {
    constexpr int place = 1;
    round r;
    r.nodes.push_back(node_of_torchrun_role(text, place));
    r.assign_ranks();
    const round_node& said = r.nodes.front();
    const round_node again = node_of_torchrun_role(torchrun_role(said), place);
    must(again.id == said.id && again.host == said.host && again.role == said.role);
    must(again.slots == said.slots && said.slots == r.size());
    const std::string ranks = torchrun_ranks(r, said);
    must(are_same_ranks(ranks, ranks) && !are_same_ranks(ranks, text));
  } catch (const std::invalid_argument&) {}
}

// --- words

template <class Words>
void read_words(std::span<const std::byte> message) {
  try {
    const bytes once = Words::decode(message).encode();
    must(Words::decode(once).encode() == once);
  } catch (const wire_error&) {}
}

// --- the table

constexpr duration patience = 5s;

/// Nodes come, ask, go and are lost; what the table decides is held against the rules
/// that its comment states.
class nodes_and_table {
 public:
  explicit nodes_and_table(input in)
      : in_(in),
        limits_(limits_of(in_)),
        places_are_given_(in_.take<std::uint8_t>() % 4 == 0),
        table_(limits_, "job", patience) {}

  void run() {
    for (int i = 0; i < most_steps && !in_.ended(); ++i) {
      act();
      check();
    }
  }

 private:
  static constexpr int most_steps = 256;
  static constexpr std::uint8_t most_nodes = 6;

  struct node {
    bool asks = false;
    bool is_outsider = false;
  };

  static rendezvous_limits limits_of(input& in) {
    rendezvous_limits limits;
    limits.max_nodes = 1 + in.take<std::uint8_t>() % (most_nodes - 1);
    limits.min_nodes = 1 + in.take<std::uint8_t>() % limits.max_nodes;
    limits.last_call = limits.min_nodes == limits.max_nodes ? 0s : 3s;
    return limits;
  }

  std::string any_id() {
    return std::string(1, static_cast<char>('a' + in_.take<std::uint8_t>() % most_nodes));
  }

  void act() {
    const std::uint8_t what = in_.take<std::uint8_t>() % 11;
    const std::string id = any_id();
    if (what <= 2) return join(id, what != 0);
    if (what == 3) return go(id, [&] { table_.miss(id, now_); });
    if (what == 4) return go(id, [&] { table_.lose(id); });
    if (what == 5) return go(id, [&] { table_.leave(id, departure::finished); });
    if (what == 6) return go(id, [&] { table_.leave(id, departure::draining); });
    if (what == 7) return pass_time();
    if (what == 8) return learn();
    if (what == 9) return table_.note_death(id);
    const bool closes = in_.take<std::uint8_t>() % 8 == 0;
    if (closes) return close();
    if (places_are_given_) join_outsider();
  }

  void join(const std::string& id, bool asks) {
    node_description said("host", 1 + in_.take<std::uint8_t>() % 3);
    said.id = id;
    std::optional<int> place;
    const std::size_t any = in_.take<std::uint8_t>() % limits_.max_nodes;
    if (places_are_given_) place = static_cast<int>(any);
    // Its coordinator refuses a node with the place of another.
    if (place && table_.holder_of(*place) && table_.holder_of(*place)->id != id) return;
    if (place) nodes_.erase(outsider_at(*place));
    table_.join(said, asks, now_, place);
    nodes_[id] = {asks, false};
  }

  static std::string outsider_at(int place) {
    return std::string(torchrun_id) + std::to_string(place);
  }

  void join_outsider() {
    round_node said;
    said.place = static_cast<int>(in_.take<std::uint8_t>() % limits_.max_nodes);
    said.id = outsider_at(said.place);
    const bool is_taken = table_.holder_of(said.place);
    table_.join_outsider(said, now_);
    if (!is_taken) nodes_[said.id] = {true, true};
  }

  template <class Go>
  void go(const std::string& id, Go how) {
    how();
    nodes_.erase(id);
  }

  void close() {
    table_.close();
    must(!table_.deadline());
  }

  void pass_time() {
    now_ += 1s * (in_.take<std::uint8_t>() % 8);
    const bool is_one_lost = in_.take<std::uint8_t>() % 4 == 0;
    const std::optional<round> next = table_.decide(now_);
    // The coordinator sleeps until the deadline: one that has passed would not let it.
    if (!next) return must(!table_.deadline() || *table_.deadline() > now_);
    check_decided(*next);
    // What happens while it is being written.
    if (is_one_lost) {
      const std::string id = any_id();
      go(id, [&] { table_.lose(id); });
    }
    table_.publish(*next);
    for (auto& [id, n] : nodes_) {
      if (next->find(id)) n.asks = n.is_outsider;
    }
    for (const round_node& n : next->nodes) {
      if (!nodes_.contains(n.id)) must(table_.over().change == round_change::node_lost);
    }
    must(table_.last()->to_json() == next->to_json());
    over_ = table_.over().change;
  }

  void check_decided(const round& next) {
    read_round(next.to_json());
    check_round(next);
    must(!table_.is_closed());
    must(next.nodes.size() >= limits_.min_nodes);
    must(next.nodes.size() <= limits_.max_nodes);
    const std::optional<round>& last = table_.last();
    must(next.number == (last ? last->number + 1 : 1));
    for (const round_node& n : next.nodes) {
      must(nodes_.contains(n.id) && nodes_[n.id].asks);
      must(static_cast<std::size_t>(n.place) < limits_.max_nodes);
      const node_description* const holder = table_.holder_of(n.place);
      must(!holder || holder->id == n.id);
    }
    if (!last) return;
    must(table_.over().change != round_change::none);
    for (const round_node& before : last->nodes) {
      if (nodes_.contains(before.id)) check_living(before, next);
    }
  }

  /// Nodes of the last round that live are in the next one, at their places.
  void check_living(const round_node& before, const round& next) {
    must(nodes_[before.id].asks);
    const round_node* const now = next.find(before.id);
    const bool has_room = table_.last()->nodes.size() <= limits_.max_nodes;
    must(now || !has_room);
    const bool is_ours = static_cast<std::size_t>(before.place) < limits_.max_nodes;
    if (!now || !is_ours || places_are_given_) return;
    must(now->place == before.place);
  }

  /// A coordinator before has published a round that an agent knows.
  void learn() {
    round later;
    later.run = "job";
    const std::uint64_t number = table_.last() ? table_.last()->number : 0;
    later.number = number + in_.take<std::uint8_t>() % 3;
    std::set<std::string> finished;
    int place = 0;
    for (std::uint8_t i = 0; i < most_nodes; ++i) {
      const std::uint8_t how = in_.take<std::uint8_t>();
      place += 1 + how % 3;
      const std::string id(1, static_cast<char>('a' + i));
      if (how >= 128) continue;
      node_description said("host", 1);
      said.id = id;
      later.nodes.emplace_back(said, place - 1);
      if (how >= 96) finished.insert(id);
    }
    later.assign_ranks();
    const bool is_new = !table_.last() || later.number > number;
    table_.learn(later, finished, now_);
    if (!is_new) return;
    over_ = round_change::none;
    for (auto& [id, n] : nodes_) {
      if (later.find(id)) n.asks = n.is_outsider;
    }
  }

  void check() {
    std::size_t asking = 0;
    for (const auto& [id, n] : nodes_) asking += n.asks;
    must(table_.asking() == asking && table_.waiting() <= asking);
    if (!table_.last()) return;
    for (const std::string& id : table_.finished()) must(table_.last()->find(id));
    // The first cause is the one that is told (rule L-e).
    must(over_ == round_change::none || table_.over().change == over_);
    over_ = table_.over().change;
    must(table_.last()->number >= number_);
    number_ = table_.last()->number;
  }

  input in_;
  const rendezvous_limits limits_;
  const bool places_are_given_;
  round_table table_;
  std::map<std::string, node> nodes_;
  time_point now_{};
  round_change over_ = round_change::none;
  std::uint64_t number_ = 0;
};

}  // namespace

// First what it is.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  input in(data, size);
  const std::uint8_t what = in.take<std::uint8_t>() % 8;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::span<const std::byte> raw = std::as_bytes(std::span(text));
  if (what == 0) read_round(text);
  if (what == 1) read_torchrun(text);
  if (what == 2) read_words<agent_words>(raw);
  if (what == 3) read_words<coordinator_words>(raw);
  if (what > 3) nodes_and_table(in).run();
  return 0;
}
