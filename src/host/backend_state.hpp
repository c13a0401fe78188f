// Backend state: the parts of one host backend, and what happens between them.
#pragma once

#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "host/collectives.hpp"
#include "host/connection.hpp"
#include "host/fan_out_send.hpp"
#include "host/host_backend.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/member_work.hpp"

namespace manyworlds::inline v0::detail {

class host_backend::state final : public host::core,
                                  public host::match_listener,
                                  public host::connection_listener,
                                  public host::collective_port,
                                  public host::fan_out_port {
 public:
  state(reactor& r, backend_listener& told, const host_backend_options& chosen,
        rank_t rank, std::vector<data_channel> channels);
  ~state() {
    home.timers().disarm(watch_);
    home.timers().disarm(tidy_);
    home.timers().disarm(deadline_);
  }

  void start(operation& op);
  [[nodiscard]] bool try_at_once(operation& op);
  bool withdraw(operation& op);
  void discard(rank_t peer, lane on);
  void quiesce(work& quiet) noexcept;
  void leave(work& gone, time_point deadline);

  [[nodiscard]] std::uint64_t queued(rank_t peer) const noexcept {
    const host::connection* const c = to(peer);
    return c ? c->queued() : 0;
  }
  [[nodiscard]] bool has_gone(rank_t peer, std::uint64_t queued) const noexcept {
    const host::connection* const c = to(peer);
    return !c || c->has_gone(queued);
  }
  [[nodiscard]] std::vector<undelivered_messages> undelivered() const;
  [[nodiscard]] std::vector<lane_status> lanes() const;
  [[nodiscard]] std::optional<collective_status> collective() const {
    return collectives_.status();
  }
  [[nodiscard]] const char* transport() const noexcept {
    if (shared_ == 0) return "tcp";
    return shared_ + 1 == size ? "shm" : "shm and tcp";
  }

  template <class Step>
  void guarded(rank_t peer, Step&& step) noexcept {
    try {
      step();
    } catch (const std::exception& e) {
      if (!stopping) events.must_break(peer, cause::out_of_resources, e.what());
    }
  }

 private:
  void send(operation& op);
  void send_to_all(operation& op);
  void start_part(operation& part) override { send(part); }
  bool withdraw_part(operation& part) override { return withdraw(part); }

  [[nodiscard]] host::connection* to(rank_t peer) const {
    MW_ASSERT(peer >= 0 && peer < size, "a peer is a member");
    return connections_[static_cast<std::size_t>(peer)].get();
  }
  template <class Visit>
  void for_each_connection(Visit&& visit) {
    for (auto& c : connections_) {
      if (c) visit(*c);
    }
  }
  /// Sends what the matcher's events have queued. They only queue answers: sending from
  /// within them would re-enter the matcher.
  void pump_touched() noexcept {
    host::connection* const c = std::exchange(touched_, nullptr);
    if (!c) return;
    c->pump();
    if (!std::exchange(touched_all_, false)) return;
    for_each_connection([](host::connection& each) { each.pump(); });
  }

  void note_collective_message(rank_t peer, std::uint64_t word) noexcept override {
    collectives_.note_message(peer, host::collective_signature(word));
  }
  void watch() noexcept override;
  void tidy_soon() noexcept override;
  void pull(host::inbound_message& m) override {
    touched_ = to(m.source);
    touched_->receiving().pull(m);
  }
  void consumed(host::inbound_message& m, bool was_received) override {
    touched_ = to(m.source);
    touched_->receiving().consumed(m, was_received);
  }
  void posted(const operation& op) override;
  void emptied(rank_t source, host::inbound_lane& l) override {
    touched_ = to(source);
    touched_->receiving().note_ready(l.number);
  }
  void discard_lane(rank_t peer, std::uint64_t number) override;
  const char* collective_frame(rank_t peer, const host::frame& f) override {
    return collectives_.handle(peer, f);
  }
  void peer_left(rank_t peer) override;
  void peer_knows(rank_t peer) override;
  void came_to_rest() noexcept override { finish_ending(); }
  void tell(rank_t peer, const host::frame& f) override;
  [[nodiscard]] bool has_left(rank_t peer) const override {
    return !to(peer) || to(peer)->has_left();
  }
  void start_step(operation& op) noexcept override {
    guarded(op.peer, [&] { start(op); });
  }
  bool withdraw_step(operation& op) noexcept override {
    bool at_once = false;
    guarded(op.peer, [&] { at_once = withdraw(op); });
    return at_once;
  }

  void look() noexcept;
  void tidy() noexcept;
  void deadline_passed() noexcept;
  void finish_ending() noexcept;

  host_backend_options options_;
  host::lane_matcher matcher_;
  host::collectives collectives_;
  std::vector<std::unique_ptr<host::connection>> connections_;
  rank_t shared_ = 0;  ///< the number of connections through shared memory
  host::fan_out_sends fan_outs_;
  host::connection* touched_ = nullptr;
  /// All other connections were touched as well.
  bool touched_all_ = false;
  member_timer<&state::look> watch_{*this};
  member_timer<&state::tidy> tidy_{*this};
  member_timer<&state::deadline_passed> deadline_{*this};
  work* quiet_ = nullptr;
  work* gone_ = nullptr;
  time_point leave_deadline_{};
  bool left_ = false;
  bool abandoned_ = false;
};

}  // namespace manyworlds::inline v0::detail
