// Rendezvous agent: one node's part in a rendezvous.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "launch/coordinator.hpp"
#include "launch/rendezvous_words.hpp"
#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/launch/rendezvous.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

/// Keeps a world with the coordinator, or is the coordinator itself, and waits for what
/// it says. Thread: the runtime's reactor.
class rendezvous::agent {
 public:
  agent(runtime& rt, rendezvous_options options, node_description self);
  agent(const agent&) = delete;
  agent& operator=(const agent&) = delete;

  task<void> run(task<void> body);
  task<round> next();
  task<round_change> changed();
  task<void> left_out();
  task<void> post(std::string text);
  task<std::map<std::string, std::string>> posted();
  task<void> leave(departure how);
  task<void> close();

  [[nodiscard]] const std::string& id() const noexcept { return said_.node.id; }
  [[nodiscard]] bool is_left_out() const noexcept { return is_left_out_; }
  [[nodiscard]] bool was_open() const noexcept { return was_open_; }
  [[nodiscard]] bool is_coordinator() const noexcept { return coordinates_; }

 private:
  task<void> take_part();
  task<std::unique_ptr<coordinator_seat>> take_seat();
  task<void> coordinate(coordinator_seat& seat);
  task<void> keep_connected();
  task<void> talk(world& w);
  task<void> talk_here(coordinator::session& s);

  void wish() noexcept;
  void hear(const coordinator_words& said);
  void hear_notices(const coordinator_words& said);
  void note_contact() noexcept;
  void note_loss();
  /// Waits for the next words, at most until then, and for no longer than it may be
  /// without a coordinator. Returns false at `until`. Errors: `no_coordinator`,
  /// `refused`.
  task<bool> news(time_point until);
  /// Says whether this node waits beside a round that stands and has no room.
  [[nodiscard]] bool is_spare() const;
  task<void> finish(time_point until);
  /// Says what a round waits for.
  [[nodiscard]] std::string what_is_missing() const;
  [[nodiscard]] rendezvous_error error(rendezvous_error_kind kind,
                                       std::string_view text) const;

  runtime& runtime_;
  const rendezvous_options options_;
  const std::unique_ptr<rendezvous_backend> backend_;
  /// What the coordinator is told, each time anew.
  agent_words said_;
  event to_say_;
  event was_told_;
  std::optional<round> round_;
  /// The number of the last round that `next` has returned.
  std::uint64_t returned_ = 0;
  coordinator_words heard_;
  event has_news_;
  round_change change_ = round_change::none;
  bool was_waiting_told_ = false;
  bool is_left_out_ = false;
  bool was_open_ = false;
  /// The notices of the round that this node is in.
  std::map<std::string, std::string> notices_;
  bool has_new_notices_ = false;
  bool has_been_connected_ = false;
  std::optional<time_point> alone_since_;
  bool coordinates_ = false;
};

}  // namespace manyworlds::inline v0
