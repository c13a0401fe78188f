// Calls of sessions, made, given up and failing, while workers are killed, stopped and
// cut off, and are replaced (S-a to S-e).
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "manyworlds/mw.hpp"
#include "manyworlds/spmd.hpp"
#include "simulation/scenario.hpp"
#include "simulation/session_ledger.hpp"
#include "simulation/session_user.hpp"
#include "simulation/simulated_workers.hpp"
#include "simulation/world_cluster.hpp"
#include "spmd/session_core.hpp"

namespace manyworlds_tests {

namespace {

/// One controller with a few users, and two to four workers.
class sessions_scenario {
 public:
  sessions_scenario(std::uint64_t seed, std::size_t lines, placement where)
      : random_(mixed_seed(seed)),
        all_(seed, network(random_, where)),
        where_(where),
        workers_(2 + static_cast<int>(random_.below(3))),
        ledger_(all_, static_cast<std::size_t>(workers_)),
        functions_(session_functions(ledger_)) {
    all_.lines_kept = lines;
  }
  seed_report run();

 private:
  /// How the session ends.
  enum class ending { closed, dropped, controller_killed };

  static std::uint64_t mixed_seed(std::uint64_t seed) {
    return seed * 0x9e3779b97f4a7c15;
  }
  static mw::simulation_options network(mw::simulated_random& random, placement where);
  [[nodiscard]] mw::session_options limits();
  [[nodiscard]] mw::task<void> control();
  [[nodiscard]] mw::task<void> use_all(const mw::session& s);
  [[nodiscard]] mw::task<void> make_whole(const mw::session& s, session_user& last);
  [[nodiscard]] mw::task<void> check_all_is_released(const mw::session& s);
  void plan_faults();
  void do_fault();
  void hurt_while(std::vector<int> workers, mw::duration span);
  void check_orphans();
  void complain_of_hang();

  mw::simulated_random random_;
  cluster all_;
  placement where_;
  int workers_;
  session_ledger ledger_;
  mw::function_table functions_;
  /// The session's, while that lives.
  simulated_workers* source_ = nullptr;
  std::vector<std::unique_ptr<session_user>> users_;
  std::size_t faults_left_ = 0;
  ending how_ = ending::closed;
  bool is_over_ = false;
};

mw::simulation_options sessions_scenario::network(mw::simulated_random& random,
                                                  placement where) {
  mw::simulation_options o;
  o.shared_memory = where == placement::together;
  if (o.shared_memory) o.longest_turn = 2us;
  if (random.one_in(4)) o.latency = random.at_most(1ms);
  if (random.one_in(4)) o.send_buffer = 4096 + random.below(60'000);
  if (random.one_in(4)) o.receive_window = 2048 + random.below(60'000);
  return o;
}

mw::session_options sessions_scenario::limits() {
  constexpr std::size_t windows[] = {1, 2, 5, 64};
  mw::session_options o;
  o.name = "sim";
  // Also how long a worker waits for a controller that was killed before they met.
  o.start = 15s;
  // A send that is given up asks for up to a second whether it was taken.
  o.grace = 1100ms + random_.at_most(1s);
  o.on_stuck = random_.one_in(2) ? mw::stuck_worker::kill : mw::stuck_worker::tell;
  o.suspect_after = 300ms;
  o.lost_after = 1s;
  o.window = windows[random_.below(4)];
  if (random_.one_in(3)) o.window_bytes = 2'000;
  return o;
}

// --- faults
// -----------------------------------------------------------------------------

void sessions_scenario::hurt_while(std::vector<int> workers, mw::duration span) {
  for (const int worker : workers) ledger_.note_hurt(worker);
  ++faults_left_;
  all_.sim.after(span, [this, workers] {
    for (const int worker : workers) ledger_.note_hurt(worker);
    --faults_left_;
  });
}

void sessions_scenario::do_fault() {
  --faults_left_;
  if (is_over_ || source_ == nullptr) return;
  const int victim =
      static_cast<int>(random_.below(static_cast<std::uint64_t>(workers_)));
  const int other = static_cast<int>(random_.below(static_cast<std::uint64_t>(workers_)));
  const auto w = source_->find(victim);
  const auto peer = source_->find(other);
  if (!w || !w->is_there()) return;
  const mw::duration span =
      random_.one_in(2) ? random_.at_most(300ms) : random_.at_most(3s);
  std::vector<int> hurt(1, victim);
  switch (random_.below(6)) {
    case 0:
    case 1:
    case 2:
      ledger_.note_hurt(victim);
      simulated_workers::kill(all_, w);
      break;
    case 3:
      hurt_while(std::move(hurt), span);
      all_.stop(*w->process, span);
      break;
    case 4:
      // Between two workers, or a worker and the controller.
      if (other != victim && (!peer || !peer->is_there())) return;
      hurt.push_back(other);
      hurt_while(std::move(hurt), span);
      all_.partition(*w->process, other == victim ? all_.at(0) : *peer->process, span);
      break;
    default:
      if (other != victim && (!peer || !peer->is_there())) return;
      hurt.push_back(other);
      hurt_while(std::move(hurt), 0ms);
      all_.cut(*w->process, other == victim ? all_.at(0) : *peer->process);
  }
}

void sessions_scenario::plan_faults() {
  const std::size_t faults = random_.below(5);
  for (std::size_t i = 0; i < faults; ++i) {
    ++faults_left_;
    if (random_.one_in(2)) {
      all_.sim.after(random_.at_most(300ms), [this] { do_fault(); });
    } else {
      all_.sim.at_step(all_.sim.steps() + random_.below(8'000), [this] { do_fault(); });
    }
  }
}

// --- the session
// ------------------------------------------------------------------------

mw::task<void> sessions_scenario::use_all(const mw::session& s) {
  std::vector<mw::task<void>> all;
  const std::size_t count = 1 + random_.below(4);
  for (std::size_t i = 0; i < count; ++i) {
    users_.push_back(std::make_unique<session_user>(all_, ledger_, s));
    all.push_back(users_.back()->use(10 + random_.below(20)));
  }
  co_await mw::when_all(std::move(all));
}

mw::task<void> sessions_scenario::make_whole(const mw::session& s, session_user& last) {
  while (faults_left_ > 0) co_await mw::sleep_for(10ms);
  // One that was stopped is lost only when it was silent for long enough.
  co_await mw::sleep_for(2s);
  bool is_whole = false;
  for (int tries = 0; tries < 100 && !is_whole; ++tries) {
    for (int worker = 0; worker < workers_; ++worker) {
      if (s.describe(worker).state == mw::worker_state::ready) continue;
      (void)co_await last.respawn(worker);
    }
    is_whole = co_await last.hear_all();
    if (is_whole) is_whole = co_await last.all_take_part();
    if (!is_whole) co_await mw::sleep_for(100ms);
  }
  if (!is_whole) ledger_.complain("it is not whole again, and there is no trouble");
}

mw::task<void> sessions_scenario::check_all_is_released(const mw::session& s) {
  co_await mw::sleep_for(20ms);
  co_await s.sync();
  for (int worker = 0; worker < workers_; ++worker) {
    const worker_place here(worker, s.describe(worker).incarnation);
    if (const int left = ledger_.values(here); left != 0) {
      ledger_.complain(fmt::format("worker {} holds {} values of drefs that were dropped",
                                   worker, left));
    }
  }
}

mw::task<void> sessions_scenario::control() {
  const struct teller {
    sessions_scenario& of;
    ~teller() {
      of.ledger_.look_at(nullptr);
      of.source_ = nullptr;
      of.is_over_ = true;
    }
  } at_last{*this};
  const mw::session_options own = limits();
  auto made = std::make_unique<simulated_workers>(all_, where_, functions_, own);
  source_ = made.get();
  mw::session s = co_await mw::detail::start_session(all_.at(0).runtime(),
                                                     std::move(made), workers_, own);
  ledger_.look_at(&s);
  session_user last(all_, ledger_, s);
  const bool has_replayable = co_await last.make_replayable();
  plan_faults();
  co_await use_all(s);
  co_await make_whole(s, last);
  if (has_replayable) co_await last.check_replayable();
  last.drop_all();
  co_await check_all_is_released(s);
  ledger_.check_everything();
  ledger_.look_at(nullptr);
  source_ = nullptr;
  if (how_ == ending::closed) co_await s.close();
}

void sessions_scenario::complain_of_hang() {
  std::string text = "law 9: the session's users wait:";
  for (const auto& user : users_) text += " " + user->doing() + ";";
  ledger_.complain(text + fmt::format(" {} faults are left", faults_left_));
}

/// Workers end when their controller does.
void sessions_scenario::check_orphans() {
  const auto all_ended = [this] {
    for (std::size_t i = 1; i < all_.size(); ++i) {
      if (all_.at(i).is_alive()) return false;
    }
    return true;
  };
  if (!all_.run_until(all_ended, 20s))
    ledger_.complain("a worker goes on without its controller");
}

seed_report sessions_scenario::run() {
  how_ = static_cast<ending>(random_.below(3));
  member_process& controller = all_.add("controller");
  if (random_.one_in(3)) {
    all_.host_store(controller);
    controller.use_store_of(controller);
  }
  controller.start(control());
  if (how_ == ending::controller_killed && random_.one_in(2)) {
    all_.sim.after(random_.at_most(400ms), [this] {
      is_over_ = true;
      source_ = nullptr;
      ledger_.look_at(nullptr);
      all_.kill(all_.at(0));
    });
  }
  if (!all_.run_until([this] { return is_over_; }, 300s)) complain_of_hang();
  if (how_ == ending::controller_killed) all_.kill(controller);
  check_orphans();
  all_.close();
  if (const int left = ledger_.all_values(); left != 0)
    ledger_.complain(fmt::format("{} values outlive their workers", left));
  if (controller.is_alive()) controller.check();
  return finished(all_);
}

}  // namespace

seed_report run_sessions_seed(std::uint64_t seed, std::size_t lines, placement where) {
  sessions_scenario scenario(seed, lines, where);
  return scenario.run();
}

}  // namespace manyworlds_tests
