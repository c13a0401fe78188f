// Member: what every benchmark's processes share. The first process leads, hosts the
// store and starts the others from this program with `--store`.
#pragma once

#include <manyworlds/manyworlds.hpp>
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
  /// Of this process, to start others with.
  std::vector<std::string> arguments;
  /// Where the leader's store is; empty in the leader.
  std::string store;
  /// What a process that does not lead is there for.
  std::string role;

  [[nodiscard]] std::string_view transport() const noexcept {
    return shared_memory ? "shm" : "tcp";
  }
  [[nodiscard]] bool leads() const noexcept { return store.empty(); }
};

[[nodiscard]] inline mw::runtime_options runtime_options_of(
    const common_options& common) noexcept {
  mw::runtime_options options;
  options.thread_name = "mwbench";
  options.engine = common.engine;
  options.shared_memory = common.shared_memory;
  options.read_peers = common.read_peers;
  options.mover = common.mover;
  options.spin = std::chrono::microseconds(common.spin_us);
  // Breaking worlds is what some of this is about.
  options.log_from = mw::log_level::error;
  return options;
}

/// A runtime that reaches the store of this run.
class member {
 public:
  explicit member(const common_options& common)
      : common_(common),
        runtime_(runtime_options_of(common)),
        hosted_(common.leads()
                    ? std::make_unique<mw::hosted_store>(runtime_, "127.0.0.1:0")
                    : nullptr),
        address_(hosted_ ? hosted_->address() : common.store),
        store_(runtime_, address_) {
    runtime_.serve_dumps();  // for mwstat
  }
  member(const member&) = delete;
  member& operator=(const member&) = delete;
  ~member() {
    if (common_.turns && common_.leads()) tell_turns();
  }

  [[nodiscard]] mw::runtime& runtime() noexcept { return runtime_; }
  [[nodiscard]] mw::store& store() noexcept { return store_; }
  [[nodiscard]] std::string_view engine() { return runtime_.home().io().name(); }

  [[nodiscard]] mw::world describe(std::string_view name, mw::rank_t rank,
                                   mw::rank_t size = 2) {
    return mw::world(runtime_, store_, {.name = name, .rank = rank, .size = size});
  }
  [[nodiscard]] child start(std::string role = "peer",
                            const std::vector<std::string>& environment = {}) const {
    std::vector<std::string> arguments = common_.arguments;
    arguments.insert(arguments.end(), {"--store", address_, "--role", std::move(role)});
    return child(arguments, environment);
  }

 private:
  void tell_turns();

  const common_options& common_;
  mw::runtime runtime_;
  std::unique_ptr<mw::hosted_store> hosted_;
  std::string address_;
  mw::tcp_store store_;
};

/// Waits for worlds that form side by side.
[[nodiscard]] mw::task<void> form_all(std::vector<mw::world>& worlds);
/// Leaves them side by side, so that no peer sees a failure.
[[nodiscard]] mw::task<void> leave_all(std::vector<mw::world>& worlds);
/// Waits for a message that nobody sends, until its world closes.
[[nodiscard]] mw::task<void> park(mw::world& w, mw::rank_t peer, mw::lane on);

}  // namespace mwbench
