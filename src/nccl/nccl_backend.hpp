// NCCL backend: device memory over a communicator, and host memory over the same
// members' links.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "communicator.hpp"
#include "device.hpp"
#include "device_job.hpp"
#include "known_views.hpp"
#include "launch_leader.hpp"
#include "manyworlds/backend/backend.hpp"
#include "manyworlds/host/host_backend.hpp"
#include "manyworlds/io/reactor.hpp"
#include "manyworlds/nccl/device_options.hpp"
#include "member_places.hpp"
#include "order_message.hpp"
#include "order_post.hpp"
#include "own_orders.hpp"
#include "ranges.hpp"

namespace manyworlds::inline v0::nccl {

/// How often a world looks at what nothing tells it of.
inline constexpr duration watch_period = std::chrono::milliseconds(250);

struct nccl_backend_options {
  world_name name;
  std::uint64_t epoch = 0;
  host_backend_options host;
  device_options device;
};

/// Matches every operation over the host backend's lanes before it is launched, so that
/// NCCL only ever sees what all its members are about to do. A send's announcement
/// travels in its lane like a message; the receive that takes it asks rank 0 for the
/// pair's place in the order; rank 0 tells both. Of collectives rank 0 counts who has
/// entered. So all members launch in one order, whatever order their coroutines came in,
/// and no stream waits for an operation that another stands behind.
/// Where other worlds are on the members' GPUs, an operation has a place in the order of
/// each GPU, and is launched when its turn comes (launch_order.hpp).
///
/// On the world's reactor. It ends as the host backend does.
class nccl_backend final : public backend,
                           private device_control,
                           private launch_leader::office,
                           private backend_events,
                           private poller {
 public:
  nccl_backend(reactor& home, backend_events& events, nccl_backend_options options,
               rank_t self, std::vector<data_channel> connections,
               std::shared_ptr<nccl::device> on);
  ~nccl_backend() override;

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
  friend class order_post;

  struct step final : work {
    using function = void (nccl_backend::*)() noexcept;
    step(nccl_backend& b, function f) noexcept
        : work([](work& w) noexcept {
            auto& self = static_cast<step&>(w);
            (self.backend_.*self.function_)();
          }),
          backend_(b),
          function_(f) {}
    nccl_backend& backend_;
    function function_;
  };
  struct hooked_timer final : timer {
    using function = void (nccl_backend::*)() noexcept;
    hooked_timer(nccl_backend& b, function f) noexcept
        : timer([](timer& t) noexcept {
            auto& self = static_cast<hooked_timer&>(t);
            (self.backend_.*self.function_)();
          }),
          backend_(b),
          function_(f) {}
    nccl_backend& backend_;
    function function_;
  };

  /// Nothing unwinds through callbacks: what there is no memory for ends the world.
  template <class Step>
  void guarded(Step&& step) noexcept {
    try {
      step();
    } catch (const std::exception& e) {
      break_world(self_, cause::out_of_resources, e.what());
    }
  }
  void break_world(rank_t rank, enum cause why, std::string detail) noexcept;

  // Operations: nccl_backend_begin.cpp, nccl_backend.cpp.
  void begin(operation& op);
  [[nodiscard]] device_job::proxy& stand_in_for(device_job& job);
  void begin_send(device_job& job);
  void begin_receive(device_job& job);
  void begin_collective(device_job& job);
  void begin_unmatched(device_job& job);
  void begin_settle(operation& op);
  void refuse(operation& op, enum cause why, std::string detail);
  void fail_group(launch_group& group);
  [[nodiscard]] device_job& job_for(operation& op);
  void take_views(device_job& job);
  void refuse(device_job& job, enum cause why, std::string detail);
  /// Empty if nothing is wrong.
  [[nodiscard]] std::string objection_to_views(device_job& job) const;
  void check_elsewhere(device_job& job);
  [[nodiscard]] bool must_be_checked(const device_job& job) const noexcept;
  [[nodiscard]] bool must_wait_for_checks(const operation& op) const noexcept;
  void fail_checking(const std::string& why);
  void end_given_up(device_job& job);
  [[nodiscard]] bool withdraw_checked(operation& op) noexcept;
  void discard_checked(rank_t peer, lane on);
  /// False if one of them is being looked at just now.
  [[nodiscard]] bool give_up_checks() noexcept;
  void await_checks() noexcept;
  bool see_checks() noexcept;
  void go_on(device_job& job);
  void start_polling() noexcept;
  void finish(device_job& job, operation_end how) noexcept;
  void fail(device_job& job, enum cause why, std::string detail) noexcept;
  void recycle(device_job& job) noexcept;
  [[nodiscard]] static device_job* job_of(const operation& op) noexcept {
    return static_cast<device_job*>(op.device->state);
  }

  // Matching and the order: nccl_backend_order.cpp.
  void proxy_ended(device_job& job, operation_end how) noexcept;
  void taken_by(device_job& receive);
  void carry_out(const pair_launch& m);
  void carry_out(const pair_closed& m);
  void carry_out(const collective_launch& m);
  void carry_out(const collective_closed& m);
  void fail_unplaced();
  [[nodiscard]] std::string why_closed(rank_t peer) const;

  // What members say: nccl_backend_messages.cpp.
  void say(rank_t to, const order_message& message);
  void say_to_all(const order_message& message);
  void heard_order(order_post& post) noexcept;
  void said_order(order_post& post) noexcept;
  void drain_messages() noexcept;
  void handle(rank_t from, const hello_message& m);
  void handle(rank_t from, const create_message& m);
  void handle(rank_t from, const pair_request& m);
  void handle(rank_t from, const pair_launch& m);
  void handle(rank_t from, const pair_closed& m);
  void handle(rank_t from, const enter_message& m);
  void handle(rank_t from, const collective_launch& m);
  void handle(rank_t from, const collective_closed& m);
  void handle(rank_t from, const made_message& m);
  void handle(rank_t from, const connect_message& m);
  void handle(rank_t from, const crowded_message& m);
  void handle(rank_t from, const places_message& m);
  void handle(rank_t from, const propose_message& m);
  void handle(rank_t from, const promise_message& m);
  void handle(rank_t from, const retract_message& m);
  /// Throws wire_error unless it is rank 0 that says so.
  static void only_from_leader(rank_t from);
  [[nodiscard]] std::string who_shares_devices() const;

  // Places in the order of this member's GPU: nccl_backend_turns.cpp.
  void take_seat();
  void leave_order() noexcept;
  void give_seat_back() noexcept;
  void order_changed() noexcept;
  void tell_crowd();
  void tell_made();
  void communicator_stands() noexcept;
  void note_orderly();
  [[nodiscard]] bool may_promise() const noexcept;
  void answer_proposals();
  /// Throws wire_error if it is not what was promised.
  void accept(const launch_place& place, launch_kind kind);
  void enqueue_matched(device_job& job, const launch_place& place);
  void take_turns() noexcept;
  void forget_promises();
  void watch_order(time_point now) noexcept;
  // Of rank 0's leader.
  void tell(rank_t whom, const order_message& message) override;
  /// True if there was one.
  bool hear_own_orders();
  void accuse(rank_t whom, enum cause why, std::string detail) override;
  [[nodiscard]] bool is_credible(std::uint64_t time) const override;
  void look_after(std::optional<time_point> due) noexcept;
  void order_timer_expired() noexcept;

  // In flight: nccl_backend_flight.cpp.
  void enqueue(device_job& job);
  void pump() noexcept;
  void pump_queue() noexcept;
  void hand_over(device_job& job);
  bool poll() noexcept override;
  bool prepare_sleep(std::optional<duration>& limit) noexcept override;
  void cancel_sleep() noexcept override {}
  void change_memory(device_job& job);
  void memory_changed(ncclResult_t result) noexcept;
  bool see_launches() noexcept;
  bool see_ends() noexcept;
  void end_settled() noexcept;
  void watch() noexcept;
  void watch_communicator(time_point now) noexcept;
  void watch_members(time_point now) noexcept;

  // From making the communicator to the end: nccl_backend_life.cpp.
  void make_communicator();
  void id_made() noexcept;
  void communicator_made() noexcept;
  void note_ready();
  void go_if_idle() noexcept;
  void ending_timer_expired() noexcept;
  void host_gone() noexcept;
  void end_leaving() noexcept;
  void quiet_communicator() noexcept;
  void communicator_is_quiet() noexcept;
  void close_device(const std::string& why);
  void fail_waiting(const std::string& why);
  void fail_queued(const std::string& why);
  void withdraw_receives(const std::string& why);
  void drop_graphs() noexcept;
  void part_is_quiet() noexcept;

  // Of the host backend.
  void connection_ended(rank_t peer, int error) noexcept override {
    events_.connection_ended(peer, error);
  }
  void must_break(rank_t peer, enum cause why, std::string detail) noexcept override {
    events_.must_break(peer, why, std::move(detail));
  }
  void peer_left(rank_t peer) noexcept override;
  void heard(rank_t peer) noexcept override { events_.heard(peer); }
  void remark(std::string line) noexcept override { events_.remark(std::move(line)); }

  [[nodiscard]] device_stream stream() const noexcept override;
  [[nodiscard]] device_status status() const override;
  void hold(graph_entry& graph) noexcept override;
  void let_go(graph_entry& graph) noexcept override;

  reactor& home_;
  backend_events& events_;
  const nccl_backend_options options_;
  const rank_t self_;
  const rank_t size_;
  std::shared_ptr<nccl::device> device_;
  std::unique_ptr<communicator> communicator_;
  bool stopping_ = false;
  transfer_counters device_counters_;
  range_names names_;

  // Operations.
  std::vector<std::unique_ptr<device_job>> jobs_;
  device_job* idle_ = nullptr;
  bool is_open_ = false;  ///< the communicator is ready
  std::deque<operation*> wait_for_device_;
  std::vector<operation*> wait_for_ticket_;

  // The order.
  std::uint64_t last_token_ = 0;
  std::uint64_t last_collective_ = 0;
  std::unordered_map<std::uint64_t, device_job*> announced_;
  std::map<std::pair<rank_t, std::uint64_t>, device_job*> unplaced_receives_;
  std::map<std::uint64_t, device_job*> entered_;
  std::vector<bool> left_;
  std::optional<launch_leader> leader_;  ///< rank 0's
  member_places places_;
  hooked_timer order_timer_{*this, &nccl_backend::order_timer_expired};

  // Messages.
  struct told {
    rank_t from;
    bytes text;
  };
  std::vector<std::unique_ptr<order_post>> posts_;
  order_post* idle_posts_ = nullptr;
  own_orders own_orders_{host_};  ///< rank 0's
  bool hears_own_ = false;
  std::deque<told> told_;
  std::vector<order_post*> unarmed_;
  bool draining_ = false;
  std::vector<std::optional<hello_message>> hellos_;  ///< rank 0's
  std::size_t hellos_heard_ = 0;
  create_message creation_;
  bool creating_ = false;
  bool never_opens_ = false;  ///< a member has left before

  // In flight.
  /// Whose views the launching thread looks at, and what must not overtake them.
  std::deque<operation*> checking_;
  known_views known_;
  time_point checks_until_{};
  hooked_timer checks_timer_{*this, &nccl_backend::await_checks};
  std::deque<device_job*> queue_;
  std::deque<device_job*> in_flight_;
  std::size_t launches_seen_ = 0;
  std::uint64_t handed_over_ = 0;
  /// A job for which the communicator's memory is being given back or taken.
  device_job* changing_ = nullptr;
  std::shared_ptr<answer> change_;
  bool is_suspended_ = false;    ///< from when that began: nothing new is started
  bool memory_is_away_ = false;  ///< from when it was done: nothing is launched
  std::uint64_t reached_ = 0;
  bool is_polling_ = false;
  time_point last_check_{};
  time_point last_end_{};
  duration blocked_before_{};
  hooked_timer watch_{*this, &nccl_backend::watch};

  // Endings.
  graph_entry* graphs_ = nullptr;
  work* gone_ = nullptr;
  bool host_leaves_ = false;
  bool broke_late_ = false;
  time_point leave_deadline_{};
  hooked_timer ending_timer_{*this, &nccl_backend::ending_timer_expired};
  work* quiet_ = nullptr;
  int noisy_parts_ = 0;
  step id_made_{*this, &nccl_backend::id_made};
  step communicator_made_{*this, &nccl_backend::communicator_made};
  step communicator_stands_{*this, &nccl_backend::communicator_stands};
  step host_gone_{*this, &nccl_backend::host_gone};
  step host_quiet_{*this, &nccl_backend::part_is_quiet};
  step communicator_quiet_{*this, &nccl_backend::communicator_is_quiet};
  bool communicator_quiets_ = false;

  /// Last: its ends refer to all of the above.
  host_backend host_;
};

}  // namespace manyworlds::inline v0::nccl
