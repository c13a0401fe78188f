// Device opening: how the members of a world come to make one communicator.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "manyworlds/detail/member_work.hpp"
#include "nccl/communicator.hpp"
#include "nccl/device_jobs.hpp"
#include "nccl/member_turns.hpp"
#include "nccl/membership.hpp"
#include "nccl/order_mail.hpp"

namespace manyworlds::inline v0::detail::nccl {

/// Each member says hello to rank 0, with its device and its NCCL; rank 0 tells all of
/// them to make the communicator, or to adopt what their options bring. Operations that
/// need the device wait here until it is ready.
///
/// Thread: the world's reactor.
class device_opening {
 public:
  /// `ended` runs when the communicator is made, or could not be.
  device_opening(membership& of, communicator& what, order_mail& mail,
                 member_turns& turns, device_jobs& jobs, work& ended);
  device_opening(const device_opening&) = delete;
  device_opening& operator=(const device_opening&) = delete;

  void begin();
  void hear(rank_t from, const hello_message& m);
  void hear(const create_message& m);

  /// Returns the least capability of all members' devices: what all of them can do.
  [[nodiscard]] int capability() const noexcept { return creation_.capability; }
  /// Returns what went wrong, for use in `ended`; empty if nothing did.
  [[nodiscard]] error_message error() const;
  /// Returns a line for the log.
  [[nodiscard]] std::string ready_line(const device_status& now, const char* links) const;

  /// Keeps the operation until the device is ready. Messages that lanes match do not wait
  /// here, as one on host memory behind them must not overtake.
  void hold(operation& op) { waiting_.push_back(&op); }
  /// Returns true if it waited here.
  [[nodiscard]] bool withdraw(operation& op) noexcept;
  [[nodiscard]] operation* take_waiting() noexcept;
  void fail_waiting(const std::string& why);

 private:
  void id_made() noexcept;
  void create(const ncclUniqueId& id);
  void adopt() { communicator_.adopt(member_.self, member_.size, ended_); }
  [[nodiscard]] bool adopts() const noexcept {
    return member_.options.device.communicator != nullptr;
  }
  [[nodiscard]] bool is_like_ours(rank_t from, const hello_message& m);
  [[nodiscard]] std::string who_shares_devices() const;

  membership& member_;
  communicator& communicator_;
  order_mail& mail_;
  member_turns& turns_;
  device_jobs& jobs_;
  work& ended_;
  std::vector<std::optional<hello_message>> hellos_;  ///< rank 0's
  std::size_t hellos_heard_ = 0;
  create_message creation_;
  bool is_told_ = false;
  std::deque<operation*> waiting_;
  member_work<&device_opening::id_made> id_made_{*this};
};

}  // namespace manyworlds::inline v0::detail::nccl
