// NCCL backend: device memory over a communicator, and host memory over the same
// members' links.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.hpp"
#include "host/host_backend.hpp"
#include "io/reactor.hpp"
#include "manyworlds/detail/member_work.hpp"
#include "nccl/communicator.hpp"
#include "nccl/device_jobs.hpp"
#include "nccl/device_opening.hpp"
#include "nccl/held_graphs.hpp"
#include "nccl/launch_queue.hpp"
#include "nccl/leading_member.hpp"
#include "nccl/matcher.hpp"
#include "nccl/member_turns.hpp"
#include "nccl/membership.hpp"
#include "nccl/order_mail.hpp"
#include "nccl/view_queue.hpp"

namespace manyworlds::inline v0::detail::nccl {

/// How often a world looks at what nothing tells it of.
inline constexpr duration watch_period = std::chrono::milliseconds(250);

/// Matches every operation over the host backend's lanes before it is launched, so that
/// NCCL only ever sees what all its members are about to do: all of them launch in one
/// order, whatever order their coroutines came in, and no stream waits for an operation
/// that another stands behind. Where other worlds are on the members' GPUs, an operation
/// also has a place in the order of each GPU (launch_order.hpp).
///
/// An operation passes `view_queue`, `matcher`, `member_turns` where it has a place, and
/// `launch_queue`. This class leads it from one to the next, and ends all of them.
///
/// Thread: the world's reactor.
class nccl_backend final : public backend,
                           private device_control,
                           private order_mail::reader,
                           private view_queue::office,
                           private launch_queue::office,
                           private backend_listener,
                           private poller {
 public:
  nccl_backend(reactor& home, backend_listener& events, nccl_backend_options options,
               rank_t self, std::vector<data_channel> connections,
               std::shared_ptr<nccl::device> on);
  ~nccl_backend() override;

  [[nodiscard]] bool sends_to_many() const noexcept override {
    return host_.sends_to_many();
  }
  void start(operation& op) noexcept override;
  bool withdraw(operation& op) noexcept override;
  /// The descriptions of messages in device memory are its host backend's messages.
  void discard(rank_t peer, lane on) noexcept override;
  void quiesce(work& quiet) noexcept override;
  void leave(work& gone, time_point deadline) noexcept override;
  [[nodiscard]] bool has_lost_buffers(const operation& op) const noexcept override;

  [[nodiscard]] std::vector<undelivered_messages> undelivered() const override;
  [[nodiscard]] std::vector<lane_status> lanes() const override;
  [[nodiscard]] std::optional<collective_status> collective() const override {
    return host_.collective();
  }
  [[nodiscard]] transfer_counters counters() const noexcept override;
  [[nodiscard]] const char* transport() const noexcept override;
  [[nodiscard]] device_control* device() noexcept override { return this; }

 private:
  // Operations.
  void begin(operation& op);
  /// Returns why it may not begin; empty if it may.
  [[nodiscard]] error_message validate_beginning(const operation& op) const;
  void take_job(operation& op, payload_layout layout);
  void go_on(device_job& job) override;
  [[nodiscard]] bool withdraw_job(device_job& job) noexcept;

  // Turns of the reactor.
  void must_poll() noexcept override;
  bool poll() noexcept override;
  bool prepare_sleep(std::optional<duration>& limit) noexcept override;
  void cancel_sleep() noexcept override {}
  void stop_polling() noexcept;
  void pump() noexcept;
  void watch() noexcept;
  void watch_given_up(time_point now) noexcept;

  // What members say.
  void read(rank_t from, const order_message& message) override;
  void all_read() noexcept override;
  template <class Message>
  void deliver(rank_t from, const Message& message);
  void order_changed() noexcept;

  // The communicator.
  void make_communicator();
  void communicator_stands() noexcept;
  void communicator_ended() noexcept;
  void not_opened() noexcept;
  void close_early(const std::string& why);
  void memory_has_changed() noexcept override;

  // Endings: nccl_backend_ending.cpp.
  void stop() noexcept;
  void go_if_idle() noexcept;
  [[nodiscard]] bool do_peers_count_on_us() const noexcept;
  [[nodiscard]] bool is_busy() const noexcept;
  void host_gone() noexcept;
  void end_leaving() noexcept;
  void ending_timer_expired() noexcept;
  void quiesce_communicator() noexcept;
  void communicator_is_quiet() noexcept;
  void part_is_quiet() noexcept;

  // Events of the host backend.
  void connection_ended(rank_t peer, int error) noexcept override {
    member_.events.connection_ended(peer, error);
  }
  void must_break(rank_t peer, enum cause why, std::string detail) noexcept override {
    member_.events.must_break(peer, why, std::move(detail));
  }
  void peer_left(rank_t peer) noexcept override;
  void heard(rank_t peer) noexcept override { member_.events.heard(peer); }
  void log(log_level level, std::string line) noexcept override {
    member_.events.log(level, std::move(line));
  }

  [[nodiscard]] device_stream stream() const noexcept override;
  [[nodiscard]] device_status status() const override;
  void hold(graph_entry& graph) noexcept override;
  void let_go(graph_entry& graph) noexcept override { graphs_.remove(graph); }

  membership member_;
  communicator communicator_;
  device_jobs jobs_{member_};
  order_mail mail_{member_, host_, *this};
  launch_queue launches_{member_, communicator_, jobs_, *this};
  member_turns turns_{member_, communicator_, mail_, launches_};
  std::optional<leading_member> leading_;  ///< rank 0's
  matcher matcher_{member_, jobs_, host_, mail_, turns_};
  view_queue views_{member_, jobs_, host_, *this};
  member_work<&nccl_backend::communicator_ended> communicator_ended_{*this};
  member_work<&nccl_backend::communicator_stands> communicator_stands_{*this};
  device_opening opening_{member_, communicator_, mail_,
                          turns_,  jobs_,         communicator_ended_};
  held_graphs graphs_;

  bool is_polling_ = false;
  time_point last_watch_{};
  member_timer<&nccl_backend::watch> watch_{*this};

  // Leaving.
  work* gone_ = nullptr;
  time_point leave_deadline_{};
  bool host_leaves_ = false;
  bool broke_late_ = false;
  member_timer<&nccl_backend::ending_timer_expired> ending_timer_{*this};
  member_work<&nccl_backend::host_gone> host_gone_{*this};
  // Breaking.
  work* quiet_ = nullptr;
  int noisy_parts_ = 0;
  bool communicator_quiets_ = false;
  member_work<&nccl_backend::part_is_quiet> part_is_quiet_{*this};
  member_work<&nccl_backend::part_is_quiet> views_are_quiet_{*this};
  member_work<&nccl_backend::communicator_is_quiet> communicator_is_quiet_{*this};

  /// It comes last: its ends refer to all of the above.
  host_backend host_;
};

}  // namespace manyworlds::inline v0::detail::nccl
