// World cluster: simulated processes with the product's own runtimes, and a store they
// share.
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "manyworlds/observe/log.hpp"
#include "manyworlds/store/memory_store.hpp"
#include "manyworlds/store/tcp_store.hpp"
#include "manyworlds/world/runtime.hpp"
#include "manyworlds/world/world.hpp"
#include "simulation/history.hpp"
#include "simulation/watched_memory.hpp"

namespace manyworlds_tests {

/// The last lines of all runtimes, for the report of a failing seed.
class remembered_log final : public mw::log_sink {
 public:
  remembered_log(const mw::simulation& sim, std::string who,
                 std::deque<std::string>& into, const std::size_t& most)
      : sim_(sim), who_(std::move(who)), lines_(into), most_(most) {}
  void write(mw::log_level level, std::string_view line) noexcept override;

 private:
  const mw::simulation& sim_;
  std::string who_;
  std::deque<std::string>& lines_;
  const std::size_t& most_;
};

/// A store in memory that can lose all it holds.
class forgetful_store final : public mw::store {
 public:
  [[nodiscard]] std::string address() const override { return "memory"; }
  [[nodiscard]] mw::task<mw::store_reply> perform(mw::store_request request) override {
    return lives_.back().perform(std::move(request));
  }
  void restart() { lives_.emplace_back(); }

 private:
  // A wait for a key of an earlier life lasts until its limit.
  std::list<mw::memory_store> lives_{1};
};

class cluster;

/// One process: its runtime, its tasks and where it finds the store.
class member_process {
 public:
  member_process(cluster& owner, mw::simulated_process& process, std::size_t index);
  member_process(const member_process&) = delete;
  member_process& operator=(const member_process&) = delete;
  ~member_process();

  void start(mw::task<void> t) { tasks_.push_back(runtime_->start(std::move(t))); }
  [[nodiscard]] bool has_ended() const;
  /// Throws what a task threw.
  void check();
  /// Destroys the runtime.
  void end();

  [[nodiscard]] mw::runtime& runtime() { return *runtime_; }
  [[nodiscard]] bool has_runtime() const { return runtime_ != nullptr; }
  [[nodiscard]] mw::simulated_process& process() { return process_; }
  [[nodiscard]] const mw::simulated_process& process() const { return process_; }
  [[nodiscard]] std::size_t index() const { return index_; }
  [[nodiscard]] const std::string& name() const { return process_.name(); }
  [[nodiscard]] bool is_alive() const {
    return process_.state() < mw::process_state::killed;
  }

  /// A client of a store that another process hosts.
  void use_store_of(const member_process& host);

  /// Where its worlds rendezvous: the cluster's own store unless it uses another.
  mw::store* rendezvous;
  /// The worlds it has now, by name, for faults that are done to one.
  std::map<std::string, mw::world*> worlds;

 private:
  mw::simulated_process& process_;
  std::size_t index_;
  remembered_log log_;
  std::unique_ptr<mw::runtime> runtime_;
  std::unique_ptr<mw::tcp_store> client_;
  std::vector<mw::started<void>> tasks_;
};

/// Ends everything in order when it is destroyed, and complains of what is left.
class cluster {
 public:
  explicit cluster(std::uint64_t seed, mw::simulation_options options = {});
  cluster(const cluster&) = delete;
  cluster& operator=(const cluster&) = delete;
  ~cluster();

  member_process& add(std::string name);
  /// On the host of another: its successor, or a rival.
  member_process& add(std::string name, member_process& beside);
  [[nodiscard]] member_process& at(std::size_t index) { return *members_[index]; }
  [[nodiscard]] std::size_t size() const { return members_.size(); }

  /// As simulation::run_until, and law 9 is looked at on the way.
  template <class Finished>
  [[nodiscard]] bool run_until(Finished&& finished, mw::duration at_most) {
    const mw::time_point limit = sim.now() + at_most;
    while (!finished()) {
      if (sim.now() >= limit || is_runaway()) return finished();
      const auto enough = [&] { return is_runaway() || finished(); };
      const mw::duration piece = std::min<mw::duration>(looking, limit - sim.now());
      // With all processes dead nothing moves the clock but us.
      if (!sim.run_until(enough, piece) && sim.is_stuck()) sim.run_for(piece);
      look();
    }
    return true;
  }
  void run_for(mw::duration time) {
    (void)run_until([] { return false; }, time);
  }

  // Faults, noted.
  void kill(member_process& m);
  void stop(member_process& m, mw::duration span);
  void partition(member_process& a, member_process& b, mw::duration span);
  void lose_link(member_process& a, member_process& b, mw::duration span);
  void cut(member_process& a, member_process& b);
  void slow_down(member_process& m, mw::duration span);
  void fail_world(const std::string& name);
  /// A paused machine: no process has listened, so none is to blame.
  void freeze(mw::duration span);
  void empty_store() {
    faults.store_was_emptied = true;
    shared_store.restart();
  }
  /// Serves an empty store over tcp.
  void host_store(member_process& m);

  /// Everything may end from now on; stops all runtimes and waits until all is quiet.
  void close();

  void watch(const mw::world& w) { cores_.push_back(mw::access::core_ptr(w)); }
  /// How many links have shared memory so far.
  [[nodiscard]] std::size_t shared_links() const { return shared_links_; }
  [[nodiscard]] std::string last_lines() const;
  [[nodiscard]] std::string dumps();

  /// Of the runtimes' logs and of the simulation's events, for reports.
  std::size_t lines_kept = 60;

  const std::uint64_t seed;
  mw::simulation sim;
  fault_log faults;
  history story{faults};
  watched_memory memory{[this] { return sim.now(); },
                        [this](std::string s) { story.complain(std::move(s)); }};
  forgetful_store shared_store;

 private:
  friend class member_process;
  static constexpr mw::duration looking = 500ms;
  static constexpr std::uint64_t most_steps = 3'000'000;

  [[nodiscard]] bool is_runaway() const { return sim.steps() > most_steps; }
  void look();

  std::deque<std::string> lines_;
  std::deque<mw::simulated_event> events_;
  std::vector<std::unique_ptr<member_process>> members_;
  std::vector<std::weak_ptr<mw::world_core>> cores_;
  std::size_t shared_links_ = 0;
  bool closed_ = false;
};

}  // namespace manyworlds_tests
