#include "manyworlds/host/host_backend.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "barrier.hpp"
#include "connection.hpp"

namespace manyworlds::inline v0 {

namespace {

// How often begun transfers are looked after, and how long small credits wait for
// company.
constexpr duration watch_period = std::chrono::milliseconds(250);
constexpr duration tidy_delay = std::chrono::milliseconds(20);
constexpr duration late_by = std::chrono::seconds(1);

host_backend_options consistent(host_backend_options o) {
  constexpr std::size_t head = operation::largest_head;
  o.eager_limit = std::clamp(o.eager_limit, head, std::size_t{1} << 20);
  o.lane_window = std::max(o.lane_window, o.eager_limit + host::message_cost + head);
  o.slice = std::max(o.slice, head);
  return o;
}

}  // namespace

class host_backend::state final : public host::core,
                                  public host::match_events,
                                  public host::connection_events,
                                  public host::barrier_port {
 public:
  state(reactor& r, backend_events& told, const host_backend_options& chosen, rank_t rank,
        std::vector<socket> streams)
      : core(r, told, options_, rank, static_cast<rank_t>(streams.size())),
        options_(consistent(chosen)),
        matcher_(size, options_.known_lanes, *this),
        barrier_(*this, *this) {
    matcher = &matcher_;
    const std::size_t peers = std::max<std::size_t>(streams.size(), 2) - 1;
    peer_window = std::max(options_.lane_window, options_.world_window / peers);
    connections_.resize(streams.size());
    for (rank_t peer = 0; peer < size; ++peer) {
      const auto at = static_cast<std::size_t>(peer);
      if (peer == self || !streams[at].is_open()) continue;
      connections_[at] =
          std::make_unique<host::connection>(*this, *this, peer, std::move(streams[at]));
    }
    for_each_connection([](host::connection& c) { c.open(); });
  }

  ~state() {
    home.timers().disarm(watch_);
    home.timers().disarm(tidy_);
    home.timers().disarm(deadline_);
  }

  void start(operation& op);
  bool withdraw(operation& op);
  void quiesce(work& quiet) noexcept;
  void leave(work& gone, time_point deadline);

  [[nodiscard]] std::vector<undelivered_messages> undelivered() const;
  [[nodiscard]] std::vector<lane_status> lanes() const;

  template <class Step>
  void guarded(rank_t peer, Step&& step) noexcept {
    try {
      step();
    } catch (const std::exception& e) {
      if (!stopping) events.must_break(peer, cause::out_of_resources, e.what());
    }
  }

 private:
  struct hooked_timer : timer {
    hooked_timer(state& s, function expired) noexcept : timer(expired), owner(s) {}
    state& owner;
  };

  [[nodiscard]] host::connection* to(rank_t peer) const {
    return connections_[static_cast<std::size_t>(peer)].get();
  }
  template <class Visit>
  void for_each_connection(Visit&& visit) {
    for (auto& c : connections_) {
      if (c) visit(*c);
    }
  }
  /// The matcher's events only queue answers: sending them from there would come back
  /// into it.
  void pump_touched() noexcept {
    if (host::connection* c = std::exchange(touched_, nullptr)) c->pump();
  }

  void watch() noexcept override {
    if (!watch_.is_armed() && !stopping)
      home.timers().arm(watch_, home.now() + watch_period);
  }
  void tidy_soon() noexcept override {
    if (!tidy_.is_armed() && !stopping) home.timers().arm(tidy_, home.now() + tidy_delay);
  }
  void pull(host::inbound_message& m) override {
    touched_ = to(m.source);
    touched_->receiving().pull(m);
  }
  void consumed(host::inbound_message& m, bool was_received) override {
    touched_ = to(m.source);
    touched_->receiving().consumed(m, was_received);
  }
  const char* collective_frame(rank_t peer, const host::frame& f) override {
    return barrier_.handle(peer, f);
  }
  void peer_left(rank_t peer) override;
  void came_to_rest() noexcept override { finish_ending(); }
  void tell(rank_t peer, const host::frame& f) override;

  void look() noexcept;
  void tidy() noexcept;
  void deadline_passed() noexcept;
  void finish_ending() noexcept;

  host_backend_options options_;
  host::lane_matcher matcher_;
  host::barrier barrier_;
  std::vector<std::unique_ptr<host::connection>> connections_;
  host::connection* touched_ = nullptr;
  hooked_timer watch_{
      *this, [](timer& t) noexcept { static_cast<hooked_timer&>(t).owner.look(); }};
  hooked_timer tidy_{
      *this, [](timer& t) noexcept { static_cast<hooked_timer&>(t).owner.tidy(); }};
  hooked_timer deadline_{*this, [](timer& t) noexcept {
                           static_cast<hooked_timer&>(t).owner.deadline_passed();
                         }};
  work* quiet_ = nullptr;
  work* gone_ = nullptr;
  time_point leave_deadline_{};
  bool leaving_ = false;
  bool abandoned_ = false;
};

void host_backend::state::start(operation& op) {
  switch (op.kind) {
    case operation_kind::send: {
      host::connection* c = to(op.peer);
      if (!c || c->has_left()) {
        return op.fail(cause::closed, "rank " + std::to_string(op.peer) + " has left");
      }
      c->sending().start(op);
      return c->pump();
    }
    case operation_kind::receive:
    case operation_kind::arrival:
      matcher_.post(op);
      return pump_touched();
    case operation_kind::barrier:
      return barrier_.enter(op);
    default:
      return op.fail(cause::invalid_argument, "an operation that moves no data");
  }
}

bool host_backend::state::withdraw(operation& op) {
  if (op.kind == operation_kind::send) {
    host::connection& c = *to(op.peer);
    const bool at_once = c.sending().withdraw(op);
    c.cancel_given_up();
    c.pump();
    return at_once;
  }
  switch (host::stage_of(op)) {
    case host::stage::queued:
      if (op.kind == operation_kind::barrier) return false;
      matcher_.unpost(op);
      return true;
    case host::stage::taking: {
      auto& m = *static_cast<host::inbound_message*>(op.backend.state);
      host::connection& c = *to(m.source);
      const bool at_once = c.receiving().withdraw(m);
      c.cancel_given_up();
      c.pump();
      return at_once;
    }
    default:
      return false;
  }
}

void host_backend::state::tell(rank_t peer, const host::frame& f) {
  host::connection* c = to(peer);
  if (!c) return;
  c->sending().control(f);
  c->pump();
}

void host_backend::state::peer_left(rank_t peer) {
  matcher_.peer_left(peer);
  barrier_.peer_left(peer);
  if (!leaving_ && !stopping) events.peer_left(peer);
}

void host_backend::state::quiesce(work& quiet) noexcept {
  quiet_ = &quiet;
  stopping = true;
  barrier_.stop();
  home.timers().disarm(watch_);
  home.timers().disarm(tidy_);
  home.timers().disarm(deadline_);
  for_each_connection([](host::connection& c) { c.stop(); });
  finish_ending();
}

void host_backend::state::leave(work& gone, time_point deadline) {
  const std::string detail = "this member has left";
  gone_ = &gone;
  leaving_ = true;
  leave_deadline_ = deadline;
  matcher_.fail_waiting(cause::closed, detail);
  barrier_.fail_all(cause::closed, detail);
  for_each_connection([](host::connection& c) { c.leave(); });
  // The last quarter is for saying that we go, without what nobody took by then.
  const duration left = std::max(deadline - home.now(), duration(0));
  home.timers().arm(deadline_, home.now() + left / 4 * 3);
  finish_ending();
}

void host_backend::state::deadline_passed() noexcept {
  if (!abandoned_) {
    abandoned_ = true;
    home.timers().arm(deadline_, std::max(leave_deadline_, home.now()));
    guarded(no_rank, [this] {
      for_each_connection([](host::connection& c) { c.abandon_sends(); });
    });
    return;
  }
  for_each_connection([](host::connection& c) { c.stop(); });
  finish_ending();
}

// Each work given to us runs once, when no request of ours is left in the engine.
void host_backend::state::finish_ending() noexcept {
  if (!quiet_ && !gone_) return;
  for (const auto& c : connections_) {
    if (c && (c->is_open() || !c->at_rest())) return;
  }
  home.timers().disarm(deadline_);
  home.timers().disarm(watch_);
  home.timers().disarm(tidy_);
  if (work* gone = std::exchange(gone_, nullptr)) {
    // Nothing is in the engine any more: what the deadline cut short ends too.
    if (!quiet_) for_each_connection([](host::connection& c) { c.end_cut_short(); });
    stopping = true;
    home.schedule(*gone);
  }
  if (work* quiet = std::exchange(quiet_, nullptr)) home.schedule(*quiet);
}

void host_backend::state::look() noexcept {
  const time_point now = home.now();
  const bool late = now - watch_.when() > late_by;
  bool again = false;
  for (auto& c : connections_) {
    if (!c || stopping) continue;
    guarded(no_rank, [&] { c->look(now, late); });
    if (stopping) return;
    c->pump();
    again = again || c->must_watch();
  }
  if (again) watch();
}

void host_backend::state::tidy() noexcept {
  guarded(no_rank,
          [this] { for_each_connection([](host::connection& c) { c.tidy(); }); });
}

std::vector<undelivered_messages> host_backend::state::undelivered() const {
  std::vector<undelivered_messages> all;
  for (rank_t peer = 0; peer < size; ++peer) {
    if (!to(peer)) continue;
    to(peer)->sending().for_each_lane([&](const host::outgoing_lane& l) {
      if (l.undelivered_messages == 0) return;
      all.push_back({peer, lane(l.number), l.undelivered_messages, l.undelivered_bytes});
    });
  }
  return all;
}

std::vector<lane_status> host_backend::state::lanes() const {
  std::vector<lane_status> all;
  const auto find = [&all](rank_t peer, std::uint64_t number) -> lane_status& {
    for (lane_status& known : all) {
      if (known.peer == peer && known.on.number() == number) return known;
    }
    lane_status& fresh = all.emplace_back();
    fresh.peer = peer;
    fresh.on = lane(number);
    return fresh;
  };
  matcher_.for_each_lane([&](rank_t peer, const host::inbound_lane& l) {
    lane_status& status = find(peer, l.number);
    status.received = l.received;
    status.waiting_receives = l.waiting.size();
    status.unexpected_messages = l.messages;
    for (const host::inbound_message* m = l.first; m; m = m->next) {
      status.unexpected_bytes += m->content.size();
    }
  });
  for (rank_t peer = 0; peer < size; ++peer) {
    if (!to(peer)) continue;
    to(peer)->sending().for_each_lane([&](const host::outgoing_lane& l) {
      lane_status& status = find(peer, l.number);
      status.sent = l.sent;
      status.waiting_sends = l.waiting.size();
    });
  }
  return all;
}

host_backend::host_backend(reactor& r, backend_events& events,
                           host_backend_options options, rank_t self,
                           std::vector<socket> connections)
    : state_(std::make_unique<state>(r, events, options, self, std::move(connections))) {}

host_backend::~host_backend() = default;

void host_backend::start(operation& op) noexcept {
  op.info = {};
  state_->guarded(op.peer, [&] { state_->start(op); });
}

bool host_backend::withdraw(operation& op) noexcept {
  bool at_once = false;
  state_->guarded(op.peer, [&] { at_once = state_->withdraw(op); });
  return at_once;
}

void host_backend::quiesce(work& quiet) noexcept { state_->quiesce(quiet); }

void host_backend::leave(work& gone, time_point deadline) noexcept {
  state_->guarded(no_rank, [&] { state_->leave(gone, deadline); });
}

std::vector<undelivered_messages> host_backend::undelivered() const {
  return state_->undelivered();
}
std::vector<lane_status> host_backend::lanes() const { return state_->lanes(); }
transfer_counters host_backend::counters() const noexcept { return state_->counters; }

}  // namespace manyworlds::inline v0
