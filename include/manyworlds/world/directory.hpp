// World directory: which worlds a runtime takes part in, and who gets what the links
// bring.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "manyworlds/link/data_channel.hpp"
#include "manyworlds/link/endpoint.hpp"
#include "manyworlds/world/control_message.hpp"
#include "manyworlds/world/formation.hpp"
#include "manyworlds/world/world_core.hpp"

namespace manyworlds::inline v0 {

/// What remains of a world for dumps.
struct ended_world {
  world_name name;
  std::uint64_t epoch = 0;
  failure first_cause;
  time_point when{};
};

/// Lives on the service reactor; what the mutex guards is for any thread.
class world_directory {
 public:
  explicit world_directory(reactor& service) : service_(service) {}

  /// Lists a world that is about to be formed; any thread. Gives the live world of that
  /// name and store, if this runtime takes part in it already, and lists nothing then.
  [[nodiscard]] std::shared_ptr<world_core> add(std::shared_ptr<world_core> core);
  void remove(const world_core& core) noexcept;
  /// Every world that is forming or up, or not yet quiet. Any thread.
  [[nodiscard]] std::vector<std::shared_ptr<world_core>> snapshot() const;
  /// The last few that left the snapshot, oldest first. Any thread.
  [[nodiscard]] std::vector<ended_world> ended() const;
  /// The live world of that name and rank in this runtime, other than `except`. Any
  /// thread.
  [[nodiscard]] std::shared_ptr<world_core> holder_of(const world_name& name, rank_t rank,
                                                      const world_core* except) const;

  void begin(formation& f) { formations_.push_back(&f); }
  void end(const formation& f) noexcept;

  [[nodiscard]] std::uint64_t last_epoch(const world_name& name) const;
  void note_epoch(const world_name& name, std::uint64_t epoch);

  /// As if it had come over a link: the member is another world of this runtime.
  void take_refusal(const refuse_message& message);
  void take_message(const std::shared_ptr<link>& from,
                    std::span<const std::byte> message);
  void link_ended(const std::shared_ptr<link>& l, enum cause why,
                  const std::string& detail) noexcept;
  /// The way to a member, which came before it was asked for; dropped after a while.
  void keep(data_channel channel, std::uint64_t world_id, rank_t rank,
            const incarnation& who);
  [[nodiscard]] std::optional<data_channel> claim(std::uint64_t world_id, rank_t peer,
                                                  const incarnation& who);
  [[nodiscard]] claim_answer answer(const claim_query& query);
  void examine_silence(time_point now) noexcept;

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

  reactor& service_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<world_core>> worlds_;
  std::vector<ended_world> ended_;  // guarded by mutex_
  std::vector<formation*> formations_;
  std::vector<early_channel> early_;
  std::map<std::string, std::uint64_t, std::less<>> epochs_;
};

}  // namespace manyworlds::inline v0
