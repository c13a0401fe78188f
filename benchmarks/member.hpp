// Member: what every benchmark's processes share. The first process leads, hosts the
// store and starts the others from this program with `--store`.
#pragma once

#include <manyworlds/gpu.hpp>
#include <manyworlds/launch.hpp>
#include <manyworlds/mw.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "processes.hpp"

namespace mwbench {

/// What all subcommands know.
struct common_options {
  bool json = false;
  /// Who leads tells at its end how long the turns of its reactors took.
  bool turns = false;
  mw::engine_kind engine = mw::engine_kind::automatic;
  /// Where processes of one host share memory; else they talk tcp.
  bool shared_memory = true;
  /// Whether they may read each other's.
  bool read_peers = true;
  /// Whether a second thread reads part of what is large.
  bool mover = true;
  /// How long reactors look before they sleep, in microseconds; negative: as the library
  /// chooses.
  int spin_us = -1;
  /// Where curves are drawn; empty: nowhere.
  std::string plot;
  /// Of this process, to start others with.
  std::vector<std::string> arguments;
  /// Where the store is that another process hosts; empty in the one that does.
  std::string store;
  /// What a process that does not lead is there for; with a launcher, its rank.
  std::string role;
  /// What a launcher (torchrun, mpirun ...) has told of this process.
  mw::launch_context job;
  /// Where this process listens, and what its peers dial instead; empty: as the library
  /// does.
  std::string listen;
  std::string advertise;

  [[nodiscard]] std::string_view transport() const noexcept {
    return shared_memory ? "shm" : "tcp";
  }
  [[nodiscard]] bool leads() const noexcept {
    return has_launcher() ? job.rank == 0 : store.empty();
  }
  [[nodiscard]] bool has_launcher() const noexcept {
    return job.launcher != mw::launcher_kind::none;
  }
};

[[nodiscard]] mw::runtime_options runtime_options_of(const common_options& common);

/// A runtime that reaches the store of this run.
class member {
 public:
  explicit member(const common_options& common)
      : common_(common),
        runtime_(runtime_options_of(common)),
        hosted_(host_store(common)),
        address_(hosted_ ? hosted_->address() : common.store),
        store_(reach_store(common)) {
    runtime_.serve_dumps();  // for mwstat
  }
  member(const member&) = delete;
  member& operator=(const member&) = delete;
  ~member() {
    if (common_.turns && common_.leads()) tell_turns();
  }

  [[nodiscard]] mw::runtime& runtime() noexcept { return runtime_; }
  [[nodiscard]] mw::store& store() noexcept { return *store_; }
  [[nodiscard]] std::string_view engine() { return runtime_.engine(); }

  [[nodiscard]] mw::world describe(std::string_view name, mw::rank_t rank,
                                   mw::rank_t size = 2) {
    return mw::world(runtime_, *store_, {.name = name, .rank = rank, .size = size});
  }
  [[nodiscard]] child start(std::string role = "peer",
                            const std::vector<std::string>& environment = {}) const {
    std::vector<std::string> arguments = common_.arguments;
    arguments.insert(arguments.end(), {"--store", address_, "--role", std::move(role)});
    return child(arguments, environment);
  }
  /// Starts the other ranks of `size`, in the leader; none if a launcher has done so.
  [[nodiscard]] std::vector<child> start_others(mw::rank_t size) const {
    std::vector<child> others;
    if (!common_.leads() || common_.has_launcher()) return others;
    for (mw::rank_t rank = 1; rank < size; ++rank)
      others.push_back(start(std::to_string(rank)));
    return others;
  }

 private:
  void tell_turns();
  /// Null where another process does.
  std::unique_ptr<mw::hosted_store> host_store(const common_options& common);
  /// Makes a client of that, or of the job's.
  std::unique_ptr<mw::store> reach_store(const common_options& common);

  const common_options& common_;
  mw::runtime runtime_;
  std::unique_ptr<mw::hosted_store> hosted_;
  std::string address_;
  std::unique_ptr<mw::store> store_;
};

/// Waits for worlds that form side by side.
[[nodiscard]] mw::task<void> form_all(std::vector<mw::world>& worlds);
/// Leaves them side by side, so that no peer sees a failure.
[[nodiscard]] mw::task<void> leave_all(std::vector<mw::world>& worlds);
/// How many of these, which are up, share memory: where a link has no slot left, the
/// next world of two processes of one host is over tcp.
[[nodiscard]] std::size_t on_shared_memory(const std::vector<mw::world>& worlds);
/// A plain connection between the members 0 and 1, the first of which listens where its
/// peers dial it; for others none.
[[nodiscard]] mw::task<line> plain_connection(mw::world& w);
/// 64 KiB each way, at once, on a lane of its own.
[[nodiscard]] mw::task<void> exchange(mw::world& w, mw::rank_t peer);
/// Waits for a message that is never sent, until its world closes.
[[nodiscard]] mw::task<void> park(mw::world& w, mw::rank_t peer, mw::lane on);

}  // namespace mwbench
