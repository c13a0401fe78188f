// World router: the worlds that a runtime takes part in, and the routing of what the
// links bring.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "link/data_channel.hpp"
#include "link/endpoint.hpp"
#include "world/control_message.hpp"
#include "world/formation.hpp"
#include "world/view_history.hpp"
#include "world/world_core.hpp"

namespace manyworlds::inline v0::detail {

class shrink_protocol;

/// Remembers a world that has ended, for dumps and claims.
struct ended_world {
  world_name name;
  std::uint64_t epoch = 0;
  failure first_cause;
  time_point when{};
  std::optional<incarnation> lost;  ///< the member that died or was silent, if one did
};

/// Takes the events of the runtime's links itself. Thread: the service reactor, except
/// where it is said otherwise.
class world_router final : public endpoint_listener {
 public:
  explicit world_router(runtime_core& rt);

  /// Lists a world that is about to be formed. If this runtime takes part in a live
  /// world of that name and store already, returns that one and lists nothing. Thread:
  /// any.
  [[nodiscard]] std::shared_ptr<world_core> add(std::shared_ptr<world_core> core);
  /// Takes a world off the list, if it is there. Thread: any.
  void remove(const world_core& core) noexcept;
  /// Returns every world that is forming or up, or not yet quiet. Thread: any.
  [[nodiscard]] std::vector<std::shared_ptr<world_core>> snapshot() const;
  /// Returns the last few that left the snapshot, oldest first. Thread: any.
  [[nodiscard]] std::vector<ended_world> ended() const;
  /// Returns the live world of that name and rank in this runtime, other than `except`.
  /// The rank is the one in the store. Thread: any.
  [[nodiscard]] std::shared_ptr<world_core> holder_of(const world_name& name, rank_t rank,
                                                      const world_core* except) const;

  void begin(formation& f) { formations_.push_back(&f); }
  void end(const formation& f) noexcept;
  /// Returns false if the view is being shrunk here already.
  [[nodiscard]] bool begin(shrink_protocol& p);
  void end(const shrink_protocol& p) noexcept;

  /// Notes a world that was committed here: the silence of its members counts from now
  /// on, and others may ask what became of its name.
  void note_formed(const std::shared_ptr<world_core>& core);
  /// Returns what is known of earlier epochs. Thread: any.
  [[nodiscard]] view_history& views() noexcept { return views_; }

  /// Takes a refusal as if it had come over a link: the member is another world of this
  /// runtime.
  void take_refusal(const refuse_message& message);
  void link_message(const std::shared_ptr<link>& from,
                    std::span<const std::byte> message) override;
  void link_ended(const std::shared_ptr<link>& l, enum cause why,
                  const std::string& detail) noexcept override;
  void slot_offered(const std::shared_ptr<link>& from, std::uint64_t world_id,
                    rank_t rank, shm_slot slot) override;
  void data_connection(stream connection, const hello& words) override;
  task<bytes> answer_query(bytes question) override;
  /// Keeps the way to a member, which came before it was asked for, for a limited time.
  void keep(data_channel channel, std::uint64_t world_id, rank_t rank,
            const incarnation& who);
  [[nodiscard]] std::optional<data_channel> claim(std::uint64_t world_id, rank_t peer,
                                                  const incarnation& who);
  /// Returns what is known here of the holder of a rank.
  [[nodiscard]] claim_answer answer(const claim_query& query);
  /// Examines the silence of all members. It is free for idle worlds (law 7): they are
  /// visited only when the silence of a member may have become significant.
  void examine_silence(time_point now) noexcept override;
  void log(log_level level, std::string line) noexcept override;

 private:
  /// A way to a member that came before its world's proposal.
  struct early_channel {
    std::uint64_t world_id;
    rank_t rank;
    incarnation who;
    time_point since;
    data_channel channel;
  };
  static constexpr std::size_t most_early = 1024;
  static constexpr std::size_t most_ended = 16;

  [[nodiscard]] claim_answer answer_by_worlds(const claim_query& query);
  /// Returns whether that epoch has ended here because that member died or was silent.
  /// A broken epoch never comes back: no process holds a rank in it. Thread: any.
  [[nodiscard]] bool has_lost(const claim_query& query) const;
  void take_between_survivors(const std::shared_ptr<link>& from,
                              control_message& message);
  /// Returns whether a successor is being formed here. A try that was given up here may
  /// still be committed.
  [[nodiscard]] bool is_being_succeeded(std::uint64_t base) const;

  runtime_core& runtime_;
  reactor& service_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<world_core>> worlds_;  // guarded by mutex_
  std::vector<ended_world> ended_;                   // guarded by mutex_
  std::vector<formation*> formations_;
  std::vector<shrink_protocol*> shrinking_;
  std::vector<early_channel> early_;
  /// Before this time the silence of no member can be significant.
  time_point next_examination_{};
  view_history views_;
};

}  // namespace manyworlds::inline v0::detail
