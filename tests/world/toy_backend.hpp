// Toy backend: a transport of one's own, between runtimes of one process. The worked
// example of src/EXTENDING.md.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "io/stream.hpp"
#include "manyworlds/detail/member_work.hpp"
#include "memory/view_cursor.hpp"
#include "world/backend_factory.hpp"

namespace manyworlds::inline v0::detail {

/// What two members share. The receiver copies out of the sender's memory, under the
/// mutex: nothing is buffered.
struct toy_wire {
  struct end {
    /// Wakes the member of this end. Called under the mutex.
    void ring() noexcept {
      if (home && !std::exchange(is_rung, true)) home->post(*alarm);
    }

    reactor* home = nullptr;  ///< null before it came, and after it went
    work* alarm = nullptr;
    bool is_rung = false;            ///< the alarm is queued at its reactor
    std::deque<operation*> offered;  ///< sends that no receive has taken
    std::vector<operation*> taken;   ///< sends to be ended
    std::uint64_t entered = 0;       ///< barriers
    bool has_left = false;
    bool knows = false;  ///< that the other has left
    bool is_over = false;
  };

  std::mutex mutex;
  std::array<end, 2> ends;
};

class toy_exchange;

class toy_backend final : public backend {
 public:
  toy_backend(toy_exchange& exchange, backend_parts parts)
      : home_(parts.home()), listener_(parts.listener()) {
    std::vector<data_channel> channels = parts.take_connections();
    for (std::size_t r = 0; r < channels.size(); ++r) {
      if (!channels[r].is_open()) continue;
      if (channels[r].has_slot())
        throw std::runtime_error("the toy needs .shared_memory = false");
      peers_.push_back(std::make_unique<peer>(*this, static_cast<rank_t>(r), exchange,
                                              channels[r].take_stream()));
    }
  }
  ~toy_backend() override { home_.timers().disarm(deadline_); }

  void start(operation& op) noexcept override;
  bool withdraw(operation& op) noexcept override;
  void quiesce(work& quiet) noexcept override;
  void leave(work& gone, time_point deadline) noexcept override;

  // Left out: a real one drops what waits on that lane, and what comes later.
  void discard(rank_t, lane) noexcept override {}
  // A send ends when it was received, and what did not end is the user's to know.
  [[nodiscard]] std::vector<undelivered_messages> undelivered() const override {
    return {};
  }
  [[nodiscard]] std::vector<lane_status> lanes() const override { return {}; }
  [[nodiscard]] transfer_counters counters() const noexcept override { return counters_; }
  [[nodiscard]] const char* transport() const noexcept override { return "toy"; }

 private:
  struct peer {
    peer(toy_backend& b, rank_t r, toy_exchange& exchange, socket s);
    [[nodiscard]] toy_wire::end& mine() const { return wire->ends[side]; }
    [[nodiscard]] toy_wire::end& theirs() const { return wire->ends[1 - side]; }
    void rang() noexcept { owner.heard_from(*this); }

    toy_backend& owner;
    const rank_t rank;
    socket stream;  ///< kept open: while it is, its addresses name this pair alone
    std::size_t side = 0;
    std::shared_ptr<toy_wire> wire;
    bool has_departed = false;
    member_work<&peer::rang> alarm{*this};
  };

  [[nodiscard]] peer* to(rank_t rank) const;
  void heard_from(peer& p) noexcept;
  void match() noexcept;
  [[nodiscard]] bool take_one(operation& op, peer& from);
  void enter(operation& op);
  void end_barriers() noexcept;
  void deadline_passed() noexcept;
  void go_on_leaving() noexcept;
  void shut() noexcept;
  void end_if_at_rest() noexcept;

  reactor& home_;
  backend_listener& listener_;
  std::vector<std::unique_ptr<peer>> peers_;
  std::deque<operation*> waiting_;   ///< receives
  std::deque<operation*> barriers_;  ///< entered, and not by all
  std::uint64_t entered_ = 0;
  transfer_counters counters_;
  bool is_leaving_ = false;
  bool is_shut_ = false;
  // They run when no alarm is queued any longer.
  work* quiet_ = nullptr;
  work* gone_ = nullptr;
  member_timer<&toy_backend::deadline_passed> deadline_{*this};
};

/// Lets the two ends of a connection find each other. Thread: any.
class toy_exchange final : public backend_factory {
 public:
  std::unique_ptr<backend> make_backend(backend_parts parts) override;
  [[nodiscard]] std::shared_ptr<toy_wire> wire_of(const std::string& connection) {
    const std::lock_guard lock(mutex_);
    std::erase_if(wires_, [](const auto& each) { return each.second.expired(); });
    std::shared_ptr<toy_wire> wire = wires_[connection].lock();
    if (!wire) wires_[connection] = wire = std::make_shared<toy_wire>();
    return wire;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<toy_wire>> wires_;
};

inline std::unique_ptr<backend> toy_exchange::make_backend(backend_parts parts) {
  return std::make_unique<toy_backend>(*this, std::move(parts));
}

inline toy_backend::peer::peer(toy_backend& b, rank_t r, toy_exchange& exchange, socket s)
    : owner(b), rank(r), stream(std::move(s)) {
  const std::string here = stream.net().local_address(stream.handle()).text();
  const std::string there = stream.net().peer_address(stream.handle()).text();
  side = here < there ? 0 : 1;
  wire = exchange.wire_of(side == 0 ? here + ' ' + there : there + ' ' + here);
  const std::lock_guard lock(wire->mutex);
  mine().home = &b.home_;
  mine().alarm = &alarm;
  // The other may have come first.
  mine().ring();
}

inline toy_backend::peer* toy_backend::to(rank_t rank) const {
  for (const auto& p : peers_) {
    if (p->rank == rank) return p.get();
  }
  return nullptr;
}

inline void toy_backend::start(operation& op) noexcept {
  if (op.head_bytes > 0 || op.takes_fresh_lanes)
    return op.fail(cause::unsupported, "the toy knows neither heads nor fresh lanes");
  switch (op.kind) {
    case operation_kind::send: {
      peer& p = *to(op.peer);
      if (p.has_departed) return op.fail(cause::closed, "that member has left");
      const std::lock_guard lock(p.wire->mutex);
      p.mine().offered.push_back(&op);
      return p.theirs().ring();
    }
    case operation_kind::receive:
      waiting_.push_back(&op);
      return match();
    case operation_kind::barrier:
      return enter(op);
    default:
      return op.fail(cause::unsupported, "the toy has no such operation");
  }
}

inline bool toy_backend::withdraw(operation& op) noexcept {
  if (op.kind == operation_kind::receive) return std::erase(waiting_, &op) > 0;
  if (op.kind != operation_kind::send)
    return false;  // entered, and the others count on it
  peer& p = *to(op.peer);
  const std::lock_guard lock(p.wire->mutex);
  return std::erase(p.mine().offered, &op) > 0;
}

/// The end of an operation may start the next one, so that this begins anew each time.
inline void toy_backend::match() noexcept {
  for (std::size_t n = 0; n < waiting_.size() && !is_shut_;) {
    operation& op = *waiting_[n];
    bool found = false;
    for (const auto& p : peers_) {
      if (op.peer != no_rank && op.peer != p->rank) continue;
      if (op.peer == p->rank && p->has_departed) {
        std::erase(waiting_, &op);
        op.fail(cause::closed, "that member has left");
        found = true;
      } else {
        found = take_one(op, *p);
      }
      if (found) break;
    }
    n = found ? 0 : n + 1;
  }
}

inline bool toy_backend::take_one(operation& op, peer& from) {
  bool fits = false;
  {
    const std::lock_guard lock(from.wire->mutex);
    std::deque<operation*>& offered = from.theirs().offered;
    const auto found = std::find_if(offered.begin(), offered.end(), [&](operation* each) {
      return each->on.number() == op.on.number();
    });
    if (found == offered.end()) return false;
    operation& sent = **found;
    fits = sent.source.total_bytes() == op.target.total_bytes();
    op.info.source = from.rank;
    op.info.on = sent.on;
    op.info.user = sent.user;
    op.info.type = sent.source.type();
    op.info.bytes = sent.source.total_bytes();
    op.info.count = op.info.bytes / size_of(op.info.type);
    op.info.has_payload = true;
    if (fits) {
      const_view_cursor source(sent.source);
      view_cursor target(op.target);
      copy_bytes(source, target, op.info.bytes);
      offered.erase(found);
      from.theirs().taken.push_back(&sent);
      from.theirs().ring();
    }
  }
  std::erase(waiting_, &op);
  if (!fits) {
    // The message stays, for a receive of its size.
    op.fail(cause::size_mismatch, "the receive is not of the message's size");
    return true;
  }
  ++counters_.messages_received;
  counters_.bytes_received += op.info.bytes;
  op.end(operation_end::done);
  return true;
}

inline void toy_backend::enter(operation& op) {
  op.backend.number = ++entered_;
  barriers_.push_back(&op);
  for (const auto& p : peers_) {
    const std::lock_guard lock(p->wire->mutex);
    p->mine().entered = entered_;
    p->theirs().ring();
  }
  end_barriers();
}

inline void toy_backend::end_barriers() noexcept {
  while (!barriers_.empty()) {
    operation& op = *barriers_.front();
    for (const auto& p : peers_) {
      const std::lock_guard lock(p->wire->mutex);
      if (p->theirs().entered < op.backend.number) return;
    }
    barriers_.pop_front();
    op.end(operation_end::done);
  }
}

/// The alarm of one wire. Thread: the reactor, as all but `toy_wire`.
inline void toy_backend::heard_from(peer& p) noexcept {
  std::vector<operation*> taken;
  bool has_left = false;
  bool is_known = false;
  {
    const std::lock_guard lock(p.wire->mutex);
    p.mine().is_rung = false;
    if (!is_shut_) {
      taken.swap(p.mine().taken);
      has_left = p.theirs().has_left;
      is_known = p.theirs().knows;
      if (has_left && !std::exchange(p.mine().knows, true)) p.theirs().ring();
    }
  }
  if (is_shut_) return end_if_at_rest();
  listener_.heard(p.rank);
  for (operation* op : taken) {
    ++counters_.messages_sent;
    counters_.bytes_sent += op->source.total_bytes();
    op->end(operation_end::done);
  }
  const bool departs = (has_left || is_known) && !std::exchange(p.has_departed, true);
  match();
  end_barriers();
  if (departs && !is_shut_) listener_.peer_left(p.rank);
  go_on_leaving();
}

inline void toy_backend::leave(work& gone, time_point deadline) noexcept {
  is_leaving_ = true;
  gone_ = &gone;
  home_.timers().arm(deadline_, deadline);
  for (operation* op : std::exchange(waiting_, {}))
    op->fail(cause::closed, "this member has left");
  go_on_leaving();
}

inline void toy_backend::deadline_passed() noexcept { shut(); }

/// Leaves when all that it sent was taken, and goes when all others know.
inline void toy_backend::go_on_leaving() noexcept {
  if (!is_leaving_ || is_shut_) return;
  bool all_know = true;
  for (const auto& p : peers_) {
    const std::lock_guard lock(p->wire->mutex);
    const bool is_empty = p->mine().offered.empty() && p->mine().taken.empty();
    if (is_empty && !std::exchange(p->mine().has_left, true)) p->theirs().ring();
    all_know = all_know && ((is_empty && p->theirs().knows) || p->theirs().is_over);
  }
  if (all_know) shut();
}

inline void toy_backend::quiesce(work& quiet) noexcept {
  quiet_ = &quiet;
  waiting_.clear();
  barriers_.clear();
  shut();
  end_if_at_rest();
}

/// From here on the others find nothing of ours (law 4), and ring no more.
inline void toy_backend::shut() noexcept {
  if (std::exchange(is_shut_, true)) return;
  home_.timers().disarm(deadline_);
  for (const auto& p : peers_) {
    const std::lock_guard lock(p->wire->mutex);
    p->mine().offered.clear();
    p->mine().taken.clear();
    p->mine().home = nullptr;
    p->mine().is_over = true;
    p->theirs().ring();
  }
  end_if_at_rest();
}

inline void toy_backend::end_if_at_rest() noexcept {
  for (const auto& p : peers_) {
    const std::lock_guard lock(p->wire->mutex);
    if (p->mine().is_rung) return;
  }
  if (work* gone = std::exchange(gone_, nullptr)) home_.schedule_next_turn(*gone);
  if (work* quiet = std::exchange(quiet_, nullptr)) home_.schedule_next_turn(*quiet);
}

}  // namespace manyworlds::inline v0::detail
