// Barrier: every member tells rank 0 that it has entered; rank 0 tells all when all have.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core.hpp"
#include "frame.hpp"

namespace manyworlds::inline v0::host {

/// How the barrier speaks to the other members.
class barrier_port {
 public:
  virtual void tell(rank_t peer, const frame& f) = 0;

 protected:
  ~barrier_port() = default;
};

/// The barriers of one world, which are numbered; several may be entered at once. Rank 0
/// alone decides how each ends, so that all members agree: only it knows who had entered
/// before leaving.
class barrier {
 public:
  /// Entries of one member that may be unanswered: it tells rank 0 of no more, and rank 0
  /// takes no more, or a peer that reads no answers would make it keep them without end.
  static constexpr std::uint64_t most_unanswered = 1024;

  barrier(core& shared, barrier_port& port);
  ~barrier() { stop(); }

  void enter(operation& op);
  /// A frame about a collective. Null, or what is wrong with it.
  const char* handle(rank_t peer, const frame& f);
  void peer_left(rank_t peer);
  void fail_all(enum cause why, const std::string& detail);
  void stop() noexcept { core_.home.timers().disarm(timer_); }
  [[nodiscard]] std::size_t waiting() const noexcept { return waiting_.size(); }

 private:
  struct hooked_timer : timer {
    explicit hooked_timer(barrier& b) noexcept
        : timer([](manyworlds::timer& t) noexcept {
            static_cast<hooked_timer&>(t).owner.overdue();
          }),
          owner(b) {}
    barrier& owner;
  };

  [[nodiscard]] bool decides() const noexcept { return core_.self == 0; }
  const char* on_enter(rank_t peer, const frame& f);
  const char* on_release(rank_t peer, const frame& f);
  const char* on_absent(rank_t peer, const frame& f);
  void tell_entries();
  void decide();
  void end_oldest(bool complete, rank_t left);
  void tell_entered(std::uint64_t sequence, const frame& f);
  void look_later();
  void overdue() noexcept;
  [[nodiscard]] std::vector<rank_t> absent() const;

  core& core_;
  barrier_port& port_;
  operation_queue waiting_;
  std::uint64_t entered_ = 0;  ///< by this member
  std::uint64_t told_ = 0;     ///< of these, to rank 0
  std::uint64_t ended_ = 0;
  std::vector<std::uint64_t> entered_by_;  ///< rank 0: the last barrier each has entered
  std::vector<bool> left_;
  rank_t left_rank_ = no_rank;  ///< who makes barriers from `ended_` + 1 on impossible
  hooked_timer timer_{*this};
  time_point first_in_{};
  bool remarked_ = false;
};

}  // namespace manyworlds::inline v0::host
