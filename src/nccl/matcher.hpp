// Matcher: finds for each operation of this member those of its peers that it belongs to,
// before any of them is launched.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "host/host_backend.hpp"
#include "nccl/device_jobs.hpp"
#include "nccl/member_turns.hpp"
#include "nccl/membership.hpp"
#include "nccl/order_mail.hpp"

namespace manyworlds::inline v0::detail::nccl {

/// A send's announcement travels in its lane of the host backend like a message; the
/// receive that takes it asks rank 0 for the pair's place. Rank 0 counts the members
/// that have entered a collective. What rank 0 decides goes to `member_turns`.
///
/// Thread: the world's reactor.
class matcher {
 public:
  matcher(membership& of, device_jobs& jobs, host_backend& lanes, order_mail& mail,
          member_turns& turns)
      : member_(of), jobs_(jobs), lanes_(lanes), mail_(mail), turns_(turns) {}
  matcher(const matcher&) = delete;
  matcher& operator=(const matcher&) = delete;

  /// Begins a message or a collective that is to be matched; its arguments and views
  /// are right.
  void begin(device_job& job);
  /// Returns true if no peer knows of it yet: then it is over.
  [[nodiscard]] bool withdraw(device_job& job) noexcept;
  /// Fails the receives that have taken no message yet.
  void fail_receives(const std::string& why);

  // What rank 0 says.
  void hear(const pair_launch& m);
  void hear(const pair_closed& m);
  void hear(const collective_launch& m);
  void hear(const collective_closed& m);
  /// Closes what has no place: what rank 0 had placed it has said before it left.
  void leader_has_left();

 private:
  void begin_send(device_job& job);
  void begin_receive(device_job& job);
  void begin_collective(device_job& job);
  [[nodiscard]] device_job::proxy& stand_in_for(device_job& job);
  void proxy_ended(device_job& job, operation_end how) noexcept;
  void taken_by(device_job& receive);
  void close(device_job& job, rank_t left, std::string why) noexcept;
  [[nodiscard]] std::string why_closed(rank_t peer) const;

  membership& member_;
  device_jobs& jobs_;
  host_backend& lanes_;
  order_mail& mail_;
  member_turns& turns_;
  std::uint64_t last_token_ = 0;
  std::uint64_t last_collective_ = 0;
  /// Sends by their tokens, until they are placed.
  std::unordered_map<std::uint64_t, device_job*> announced_;
  /// Receives that have taken a send, by its sender and token, until they are placed.
  std::map<std::pair<rank_t, std::uint64_t>, device_job*> unplaced_receives_;
  std::map<std::uint64_t, device_job*> entered_;  ///< collectives by their numbers
};

}  // namespace manyworlds::inline v0::detail::nccl
