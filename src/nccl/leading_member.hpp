// Leading member: what rank 0 does for its world beyond what every member does.
#pragma once

#include <optional>

#include "manyworlds/detail/member_work.hpp"
#include "nccl/launch_leader.hpp"
#include "nccl/member_turns.hpp"
#include "nccl/membership.hpp"
#include "nccl/order_mail.hpp"

namespace manyworlds::inline v0::detail::nccl {

/// Gives the launch leader a clock, and carries its decisions to the members.
///
/// Thread: the world's reactor.
class leading_member final : private launch_leader::office {
 public:
  leading_member(membership& of, order_mail& mail, const member_turns& turns);
  leading_member(const leading_member&) = delete;
  leading_member& operator=(const leading_member&) = delete;
  ~leading_member();

  // What members say.
  void hear(rank_t from, const pair_request& m);
  void hear(rank_t from, const enter_message& m);
  void hear(rank_t from, const made_message& m);
  void hear(rank_t from, const crowded_message& m);
  void hear(rank_t from, const promise_message& m);

  /// Notes that the device is ready here.
  void open();
  /// Notes that the device never opens, since a member has left.
  void give_up_opening() { leader_.give_up_opening(); }
  void note_left(rank_t who);
  /// Notes that this member leaves: it decides nothing further.
  void retire() { leader_.retire(); }
  /// Tells nothing further.
  void stop() noexcept;

  /// Breaks the world for a member that is overdue. Called every `watch_period`.
  void watch(time_point now) noexcept;

 private:
  void tell(rank_t whom, const order_message& message) override;
  void accuse(rank_t whom, enum cause why, std::string detail) override;
  [[nodiscard]] bool is_credible(std::uint64_t time) const override;
  void call_at(std::optional<time_point> due) noexcept;
  void timer_expired() noexcept;
  void watch_collectives(time_point now) noexcept;

  membership& member_;
  order_mail& mail_;
  const member_turns& turns_;
  launch_leader leader_;
  member_timer<&leading_member::timer_expired> timer_{*this};
};

}  // namespace manyworlds::inline v0::detail::nccl
