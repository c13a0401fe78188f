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

class agreement;

/// What remains of a world for dumps.
struct ended_world {
  world_name name;
  std::uint64_t epoch = 0;
  failure first_cause;
  time_point when{};
  /// The member whose death or silence it was, if it was that.
  std::optional<incarnation> lost;
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
  /// The live world of that name and rank, as it stands in the store, in this runtime,
  /// other than `except`. Any thread.
  [[nodiscard]] std::shared_ptr<world_core> holder_of(const world_name& name, rank_t rank,
                                                      const world_core* except) const;

  void begin(formation& f) { formations_.push_back(&f); }
  void end(const formation& f) noexcept;
  /// False if the view is being shrunk here already.
  [[nodiscard]] bool begin(agreement& a);
  void end(const agreement& a) noexcept;

  /// It is committed here: others may ask what became of its name, also when it is gone.
  void note_formed(const std::shared_ptr<world_core>& core);
  /// As a member has said, it is committed, and is `origin`'s successor: `shrunk`, which
  /// is a world of its members, goes on from it.
  void note_learned(const std::shared_ptr<world_core>& shrunk, std::uint64_t origin,
                    const world_view& view);
  /// What `successors` of it may have been committed, as far as it is known here.
  void note_doubts(const world_view& base, const known_successors& successors);

  [[nodiscard]] std::uint64_t last_epoch(const world_name& name) const;
  void note_epoch(const world_name& name, std::uint64_t epoch);
  /// Of a name that nobody here will form again. Any thread.
  void forget_epoch(const world_name& name) noexcept;

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
  /// Whether that epoch has ended here because its member of that rank was not heard of
  /// any more. An epoch that is broken never comes back: nobody holds a rank in it.
  [[nodiscard]] bool has_lost(const claim_query& query) const;
  /// Costs nothing for idle worlds: they are gone over only when the silence of some
  /// member could have come to mean something.
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
  /// A view that was committed here, or is known to be.
  struct formed_view {
    /// Its world, or the one that was shrunk when this was learned.
    std::weak_ptr<world_core> core;
    /// Two stores may hold two worlds of one name.
    const store* rendezvous = nullptr;
    /// The view whose successor it is; 0 if it was formed through the store.
    std::uint64_t origin = 0;
    /// Of a successor with its members.
    world_view view;
    /// See known_successors, which may be gone.
    std::vector<std::vector<rank_t>> doubts;
    bool has_more_doubts = false;
  };
  struct formed_views {
    std::vector<formed_view> last;
    /// Below that, some are forgotten.
    std::uint64_t known_from = 0;
  };
  static constexpr std::size_t most_formed = 8;
  static constexpr std::size_t most_early = 1024;
  static constexpr std::size_t most_ended = 16;

  void take_between_survivors(const std::shared_ptr<link>& from,
                              control_message& message);
  /// Nothing if this process may still take part in shrinking that view.
  [[nodiscard]] std::optional<standing_message> standing_of(
      const survivor_message& call, const incarnation& asker) const;
  void list(const world_name& name, formed_view formed);
  [[nodiscard]] formed_views formed_as(const world_name& name) const;
  /// A try that was given up here may be committed yet.
  [[nodiscard]] bool is_being_succeeded(std::uint64_t base) const;

  reactor& service_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<world_core>> worlds_;
  std::vector<ended_world> ended_;  // guarded by mutex_
  std::vector<formation*> formations_;
  std::vector<agreement*> agreements_;
  std::vector<early_channel> early_;
  /// Earlier no world can have anything to say of its members' silence.
  time_point next_examination_{};
  std::map<std::string, std::uint64_t, std::less<>> epochs_;  // guarded by mutex_
  std::map<std::string, formed_views, std::less<>> formed_;   // guarded by mutex_
};

}  // namespace manyworlds::inline v0
