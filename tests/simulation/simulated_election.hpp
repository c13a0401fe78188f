// Simulated election: what etcd gives a rendezvous, in the memory of a simulation.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/launch/rendezvous.hpp"
#include "simulation/world_cluster.hpp"

namespace manyworlds_tests {

/// A seat under a lease. Its keeper renews it; another takes it when it has run out. A
/// write under a lost seat does nothing.
class simulated_election {
 public:
  static constexpr mw::duration lease = 2s;
  static constexpr mw::duration renewal = 500ms;

  explicit simulated_election(cluster& all) : all_(all) {}

  /// Rounds as they were written, in order, each with the seat that wrote it.
  std::vector<mw::round> written;
  bool is_closed = false;
  /// Nothing is answered: not by the election, nor by the store in which the agents meet.
  bool is_silent = false;
  /// Writes that came from a seat that was lost.
  int refused = 0;
  /// Writes that are under way.
  int writing = 0;

  [[nodiscard]] std::unique_ptr<mw::rendezvous_backend> backend_of(member_process& m);

 private:
  class backend;
  class meeting_place;
  class seat;

  void answer(mw::store_operation what) const {
    if (!is_silent) return;
    throw mw::store_error(mw::store_failure(mw::store_error_kind::unreachable, "etcd",
                                            what, {}, mw::duration::zero(),
                                            "it is silent"));
  }
  [[nodiscard]] bool holds(std::uint64_t seat) const {
    return seat == holder_ && all_.sim.now() < held_until_;
  }
  std::optional<std::uint64_t> try_take() {
    if (all_.sim.now() < held_until_) return std::nullopt;
    held_until_ = all_.sim.now() + lease;
    return ++holder_;
  }
  void renew(std::uint64_t seat) {
    if (holds(seat)) held_until_ = all_.sim.now() + lease;
  }
  void revoke(std::uint64_t seat) {
    if (seat == holder_) held_until_ = all_.sim.now();
  }

  cluster& all_;
  std::uint64_t holder_ = 0;
  mw::time_point held_until_{};
};

class simulated_election::seat final : public mw::coordinator_seat {
 public:
  seat(simulated_election& of, std::uint64_t number) : of_(of), number_(number) {}
  ~seat() override { of_.revoke(number_); }

  [[nodiscard]] std::string name() const override { return std::to_string(number_); }
  mw::task<std::string> read() override {
    co_await mw::sleep_for(1ms);
    co_return of_.written.empty() ? std::string() : of_.written.back().to_json();
  }
  mw::task<bool> publish(std::string text) override {
    ++of_.writing;
    co_await mw::sleep_for(1ms);
    --of_.writing;
    of_.answer(mw::store_operation::set);
    if (!of_.holds(number_)) {
      ++of_.refused;
      co_return false;
    }
    of_.written.push_back(mw::round::from_json(text));
    co_return true;
  }
  mw::task<bool> close() override {
    co_await mw::sleep_for(1ms);
    if (of_.holds(number_)) of_.is_closed = true;
    co_return of_.holds(number_);
  }
  mw::task<void> lost() override {
    while (of_.holds(number_)) {
      of_.renew(number_);
      co_await mw::sleep_for(renewal);
    }
  }

 private:
  simulated_election& of_;
  const std::uint64_t number_;
};

class simulated_election::meeting_place final : public mw::store {
 public:
  meeting_place(const simulated_election& of, mw::store& under)
      : of_(of), under_(under) {}
  ~meeting_place() override { end_users(); }

  [[nodiscard]] std::string address() const override { return "etcd"; }
  mw::task<mw::store_reply> perform(mw::store_request request) override {
    of_.answer(request.operation);
    return under_.perform(std::move(request));
  }

 private:
  const simulated_election& of_;
  mw::store& under_;
};

class simulated_election::backend final : public mw::rendezvous_backend {
 public:
  backend(simulated_election& of, member_process& self)
      : of_(of), store_(of, *self.rendezvous) {}

  mw::store& meeting_place() override { return store_; }
  mw::task<std::unique_ptr<mw::coordinator_seat>> take_seat(
      const mw::node_description&) override {
    for (;;) {
      of_.answer(mw::store_operation::try_get);
      const std::optional<std::uint64_t> taken = of_.try_take();
      if (taken) co_return std::make_unique<seat>(of_, *taken);
      co_await mw::sleep_for(10ms);
    }
  }
  mw::task<bool> is_closed() override { co_return of_.is_closed; }
  mw::task<void> coordinator_died(std::string seat) override {
    if (!seat.empty()) of_.revoke(std::stoull(seat));
    co_return;
  }
  mw::duration patience() const noexcept override { return 60s; }
  bool has_successors() const noexcept override { return true; }

 private:
  simulated_election& of_;
  simulated_election::meeting_place store_;
};

inline std::unique_ptr<mw::rendezvous_backend> simulated_election::backend_of(
    member_process& m) {
  return std::make_unique<backend>(*this, m);
}

}  // namespace manyworlds_tests
