// Simulated masters: those of one job in virtual time, which elect the one that leads.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "manyworlds/coro/sleep.hpp"
#include "mpmd/job_leadership.hpp"
#include "mpmd/master_seat.hpp"
#include "simulation/simulated_graph.hpp"

namespace manyworlds_tests {

/// The seat as a store outside of all processes has it, under a lease.
struct leased_seat {
  static constexpr mw::duration lease = 5s;
  static constexpr mw::duration renewal = 1s;

  explicit leased_seat(mw::simulation& of) : sim(of) {}

  [[nodiscard]] bool is_held_by(std::int64_t claim) const {
    return holder.claim == claim && sim.now() < held_until;
  }

  mw::simulation& sim;
  mw::detail::seat_holder holder;
  mw::time_point held_until{};
};

/// One master's way to the seat. While `is_cut` nothing of it is answered.
class simulated_seat final : public mw::detail::master_seat {
 public:
  simulated_seat(leased_seat& kept, std::shared_ptr<const bool> is_cut)
      : kept_(kept), is_cut_(std::move(is_cut)) {}

  mw::task<std::optional<mw::detail::seat_holder>> holder() override {
    co_await on_its_way();
    if (!kept_.is_held_by(kept_.holder.claim)) co_return std::nullopt;
    co_return kept_.holder;
  }
  mw::task<bool> take(std::string address) override {
    co_await on_its_way();
    if (kept_.is_held_by(mine_)) kept_.held_until = kept_.sim.now();
    if (kept_.is_held_by(kept_.holder.claim)) co_return false;
    mine_ = kept_.holder.claim + 1;
    kept_.holder = {std::move(address), mine_};
    kept_.held_until = kept_.sim.now() + leased_seat::lease;
    co_return true;
  }
  mw::task<void> until_free(mw::detail::seat_holder of) override {
    while (*is_cut_ || kept_.is_held_by(of.claim)) co_await mw::sleep_for(50ms);
  }
  mw::task<void> free(mw::detail::seat_holder dead) override {
    co_await on_its_way();
    if (kept_.is_held_by(dead.claim)) kept_.held_until = kept_.sim.now();
  }
  mw::task<std::string> lost() override {
    while (kept_.is_held_by(mine_)) {
      if (!*is_cut_) kept_.held_until = kept_.sim.now() + leased_seat::lease;
      co_await mw::sleep_for(leased_seat::renewal);
    }
    co_return "its lease has ended";
  }
  mw::task<void> leave() override {
    co_await on_its_way();
    if (kept_.is_held_by(mine_)) kept_.held_until = kept_.sim.now();
  }

 private:
  mw::task<void> on_its_way() {
    co_await mw::sleep_for(kept_.sim.random().at_most(2ms));
    if (*is_cut_)
      throw mw::detail::context_error(mw::detail::context_trouble::unreachable,
                                      "the seat's store does not answer");
  }

  leased_seat& kept_;
  const std::shared_ptr<const bool> is_cut_;
  std::int64_t mine_ = 0;
};

/// One process's way to a store, which does not answer while `is_cut`.
class cut_store final : public mw::store {
 public:
  cut_store(mw::store& under, std::shared_ptr<const bool> is_cut)
      : under_(under), is_cut_(std::move(is_cut)) {}
  ~cut_store() override { end_users(); }

  [[nodiscard]] std::string address() const override { return under_.address(); }
  mw::task<mw::store_reply> perform(mw::store_request request) override {
    const mw::store_operation what = request.operation;
    co_await must_answer(what);
    mw::store_reply reply = co_await under_.perform(std::move(request));
    co_await must_answer(what);
    co_return reply;
  }

 private:
  mw::task<void> must_answer(mw::store_operation what) const {
    if (!*is_cut_) co_return;
    co_await mw::sleep_for(500ms);
    throw mw::store_error(mw::store_failure(mw::store_error_kind::unreachable, address(),
                                            what, {}, mw::duration::zero(),
                                            "it is cut off"));
  }

  mw::store& under_;
  const std::shared_ptr<const bool> is_cut_;
};

/// One master and its ways to what is outside of it.
struct elected_master {
  member_process* process = nullptr;
  std::shared_ptr<bool> is_cut = std::make_shared<bool>(false);
  std::unique_ptr<simulated_context> context = {};
  std::unique_ptr<simulated_seat> seat = {};
  std::unique_ptr<cut_store> meeting = {};
  /// It is frozen or cut off.
  bool is_harmed = false;
  std::optional<int> exit_code = {};

  [[nodiscard]] bool may_go_on() const { return process->is_alive() && !exit_code; }
};

/// The masters of a simulated graph, of which the product's election chooses.
class elected_masters {
 public:
  explicit elected_masters(simulated_graph& of) : graph_(of), seat_(of.all.sim) {}
  elected_masters(const elected_masters&) = delete;
  elected_masters& operator=(const elected_masters&) = delete;
  ~elected_masters() { graph_.close(); }

  elected_master& start() {
    elected_master& own = *all_.emplace_back(std::make_unique<elected_master>());
    own.process = &graph_.added("master");
    own.context =
        std::make_unique<simulated_context>(graph_.kept, graph_.all.sim, own.is_cut);
    own.seat = std::make_unique<simulated_seat>(seat_, own.is_cut);
    own.meeting = std::make_unique<cut_store>(*own.process->rendezvous, own.is_cut);
    auto leads = std::make_unique<mw::detail::job_leadership>(
        own.process->runtime(), *own.meeting, *own.context, *own.seat, graph_.graph(),
        graph_.graph().name(), graph_.limits);
    own.process->start(run(std::move(leads), own));
    return own;
  }
  /// Returns the one that leads, or led last; null if that one is dead or has ended.
  [[nodiscard]] elected_master* leader() {
    elected_master* found = nullptr;
    for (const auto& each : all_)
      if (each->context->own_term() == graph_.kept.term) found = each.get();
    return found != nullptr && found->may_go_on() ? found : nullptr;
  }
  void freeze(elected_master& which, mw::duration span) {
    graph_.all.stop(*which.process, span);
    be_harmed(which, span);
  }
  /// It reaches no store for that long, and no agent and no other master if it is an
  /// island.
  void cut_off(elected_master& which, mw::duration span, bool is_island) {
    *which.is_cut = true;
    graph_.all.sim.after(span, [is_cut = which.is_cut] { *is_cut = false; });
    be_harmed(which, span);
    if (!is_island) return;
    for (const auto& each : all_)
      if (each.get() != &which)
        graph_.all.partition(*each->process, *which.process, span);
    graph_.for_each_agent([&](const std::string&, member_process& each) {
      graph_.all.partition(each, *which.process, span);
    });
  }
  [[nodiscard]] const std::vector<std::unique_ptr<elected_master>>& all() const {
    return all_;
  }

 private:
  void be_harmed(elected_master& which, mw::duration span) {
    which.is_harmed = true;
    graph_.all.sim.after(span, [&which] { which.is_harmed = false; });
  }
  mw::task<void> run(std::unique_ptr<mw::detail::job_leadership> leads,
                     elected_master& own) {
    try {
      own.exit_code = co_await leads->run();
    } catch (const std::exception& e) {
      graph_.wrong.push_back(std::string("a master ends: ") + e.what());
    }
  }

  simulated_graph& graph_;
  leased_seat seat_;
  std::vector<std::unique_ptr<elected_master>> all_;
};

}  // namespace manyworlds_tests
