// Round table: decides which nodes form the next round. Without I/O, threads or clocks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "manyworlds/launch/rendezvous.hpp"
#include "manyworlds/launch/round.hpp"
#include "manyworlds/time.hpp"

namespace manyworlds::inline v0::detail {

/// The nodes that a coordinator knows, and the rules of rounds:
///
/// - The first round forms when `max_nodes` ask for it, or `last_call` after `min_nodes`
///   do. Falling below the minimum takes the last call back.
/// - A round is over when one of its nodes is lost, drains, or asks for the next one. The
///   others are told, and asked to ask too.
/// - A later round forms as soon as all that live of the one before have asked, if there
///   are at least `min_nodes` with those that wait. It waits for no last call.
/// - A node keeps its place while it lives. Others get free places by the order in which
///   they asked; those beyond `max_nodes` are spares.
/// - A node that left because its work is done leaves its round as it is.
///
/// A coordinator that takes over knows the last round, and hears of its nodes one by one.
/// Those that it has not heard of within `patience` are lost, as are those of which the
/// connection broke and that have not come back by then. Those that others saw die are
/// lost as soon as no other node is awaited: until then one may say that they had
/// finished.
class round_table {
 public:
  /// Why the current round is over.
  struct ending {
    round_change change = round_change::none;
    std::string node;  ///< the id that it is about
  };

  /// `patience` is how long a node of the last round may be away.
  round_table(const rendezvous_limits& limits, std::string run, duration patience);

  /// A node is there. `asks` for the next round, or is content with the one that it is
  /// in. A node that is known already, as after a broken connection, is not counted
  /// twice.
  /// `place`: the one that it was given; nothing where it gets one here. Precondition: no
  /// other node with an agent was given it, and either all nodes were given one or none.
  void join(const node_description& node, bool asks, time_point now,
            std::optional<int> place = std::nullopt);
  /// A node without an agent is there: it asks for every round, until a node with an
  /// agent comes with its place.
  void join_outsider(const round_node& node, time_point now);
  /// Returns the node with an agent that was given a place, or null.
  [[nodiscard]] const node_description* holder_of(int place) const noexcept;
  /// A node is away, and may come back within `patience`.
  void miss(std::string_view id, time_point now);
  /// Another node saw the process of this one die. Says nothing about one that is here.
  void note_death(std::string_view id) noexcept;
  /// A node is gone without a word, or by its own wish.
  void lose(std::string_view id);
  void leave(std::string_view id, departure how);
  /// No further round forms.
  void close() noexcept { is_closed_ = true; }
  [[nodiscard]] bool is_closed() const noexcept { return is_closed_; }
  /// A round of that number was published: the next one has a higher number.
  void note_number(std::uint64_t number) noexcept {
    highest_ = std::max(highest_, number);
  }
  /// An agent knows a later round than we do: a coordinator before us had published it.
  /// `finished` of its nodes are done and not awaited.
  void learn(const round& later, const std::set<std::string>& finished, time_point now);

  /// Returns the round that is to be published now, if the rules say so. It counts once
  /// it is given to `publish`.
  [[nodiscard]] std::optional<round> decide(time_point now);
  void publish(const round& decided);
  /// Returns when `decide` may have another answer although nothing happens.
  [[nodiscard]] std::optional<time_point> deadline() const noexcept;

  [[nodiscard]] const std::optional<round>& last() const noexcept { return last_; }
  [[nodiscard]] const ending& over() const noexcept { return over_; }
  [[nodiscard]] const std::set<std::string>& finished() const noexcept {
    return finished_;
  }
  /// Nodes that ask for a round and are in none that stands.
  [[nodiscard]] std::size_t waiting() const noexcept;
  [[nodiscard]] std::size_t asking() const noexcept;
  [[nodiscard]] const rendezvous_limits& limits() const noexcept { return limits_; }

 private:
  struct member {
    node_description node;
    bool asks = false;
    std::uint64_t order = 0;  ///< of its asking
    std::optional<int> given_place;
    bool is_outsider = false;
  };

  member& enter(const node_description& node, bool asks, time_point now,
                std::optional<int> place);
  [[nodiscard]] member* find(std::string_view id) noexcept;
  [[nodiscard]] bool is_in_last(std::string_view id) const noexcept;
  [[nodiscard]] bool is_complete(time_point now);
  [[nodiscard]] round form() const;
  void end_round(round_change why, std::string_view node);
  void lose_away(time_point now);
  void drop(std::string_view id);
  void finish(const std::string& id);
  void replace_outsider(int place);

  const rendezvous_limits limits_;
  const std::string run_;
  const duration patience_;
  std::optional<round> last_;
  std::uint64_t highest_ = 0;
  ending over_;
  std::vector<member> members_;
  std::uint64_t next_order_ = 0;
  /// Nodes of the last round that are away, and until when they may be.
  struct away {
    std::string id;
    time_point until;
    bool has_died = false;
  };
  std::vector<away> away_;
  /// Nodes of the last round that have left it as done.
  std::set<std::string> finished_;
  std::optional<time_point> last_call_;
  bool is_closed_ = false;
};

}  // namespace manyworlds::inline v0::detail
