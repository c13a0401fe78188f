// Shared by examples that run one process per terminal: the arguments that say which
// worlds a process belongs to, and through which stores they form.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <manyworlds/gpu.hpp>
#include <manyworlds/launch.hpp>
#include <manyworlds/mw.hpp>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "network.hpp"
#include "process.hpp"

using namespace std::chrono_literals;

struct membership {
  int world = 0;
  mw::rank_t rank = 0;
  [[nodiscard]] std::string name() const { return fmt::format("world{}", world); }
};

/// Without `worlds` an example starts its processes itself: its own program again, each
/// with the arguments that a user would type, and two that are not shown.
struct arguments {
  explicit arguments(CLI::App& app) : network(app) {
    app.add_option(
           "--worldinfo", texts_,
           "WORLD,RANK: a world this process belongs to, and its rank there; may be "
           "given several times. Without: starts all processes itself")
        ->allow_extra_args(false);
    app.add_option("--addr", address, "where a world's rank 0 hosts its store")
        ->capture_default_str();
    app.add_option("--port", port,
                   "port of world 0's store; world N's is 1000 x N higher")
        ->capture_default_str();
    app.add_option("--backend", backend, "what moves the data: nccl for GPUs")
        ->check(CLI::IsMember({"host", "nccl"}))
        ->capture_default_str();
    app.add_option("--device", device, "with nccl: this process's GPU")
        ->capture_default_str();
    app.add_option("--store", store,
                   "HOST:PORT of a store that runs already, for all worlds");
    app.add_option("--parent", parent)->group("");
    app.callback([this] { begin(); });
  }

  [[nodiscard]] bool on_gpus() const { return backend == "nccl"; }
  [[nodiscard]] mw::runtime_options runtime() const;
  [[nodiscard]] mw::world_options world(const membership& m, mw::rank_t size) const {
    mw::world_options options{.name = m.name(), .rank = m.rank, .size = size};
    if (on_gpus()) {
      options.backend = mw::backend_kind::nccl;
      options.device = device;
    }
    return options;
  }
  /// Starts process number `index` of `count`; this one is the first. GPUs are taken in
  /// turn. Where there are too few, two processes share one: NCCL refuses this unless
  /// they seem to be of two hosts.
  [[nodiscard]] process start(std::vector<std::string> words, int index,
                              int count) const {
    words.insert(words.end(), {"--store", store, "--backend", backend});
    network.hand_on(words);
    std::string variable;
    if (on_gpus()) {
      const int devices = std::max(mw::device_count(), 1);
      words.insert(words.end(), {"--device", std::to_string(index % devices)});
      if (devices < count) variable = fmt::format("NCCL_HOSTID=process{}", index);
    }
    return process(std::move(words), std::move(variable));
  }

  /// Takes the worlds of this process's rank where a launcher has started one process for
  /// each place, and no argument says more.
  void ask_launcher(const std::vector<std::vector<membership>>& places) {
    if (!worlds.empty() || parent) return;
    mw::launch_context found = mw::launch_context::from_environment();
    if (found.launcher == mw::launcher_kind::none) return;
    if (static_cast<std::size_t>(found.size) != places.size()) {
      throw std::runtime_error(
          fmt::format("it takes {} processes, and the launcher has started {}",
                      places.size(), found.size));
    }
    worlds = places[static_cast<std::size_t>(found.rank)];
    if (on_gpus()) device = found.device();
    job = std::move(found);
  }

  network_arguments network;
  std::vector<membership> worlds;
  /// What the launcher has told, if there is one.
  std::optional<mw::launch_context> job;
  std::string address = "127.0.0.1", backend = "host", store;
  int port = 29500, device = 0;
  pid_t parent = 0;

 private:
  void begin() {
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    if (parent) end_with(parent);
    for (const std::string& text : texts_) {
      membership m;
      char rest = 0;
      if (std::sscanf(text.c_str(), "%d,%d%c", &m.world, &m.rank, &rest) != 2) {
        throw CLI::ValidationError("--worldinfo " + text,
                                   "expected WORLD,RANK, for instance 1,0");
      }
      worlds.push_back(m);
    }
  }
  std::vector<std::string> texts_;
};

/// Each world's store is hosted by its rank 0, unless --store or a launcher has one for
/// all.
class stores {
 public:
  stores(mw::runtime& rt, const arguments& given) {
    if (given.job) {
      of_the_job_.emplace(rt, *given.job);
      return;
    }
    for (const membership& m : given.worlds) {
      std::string at = given.store;
      if (at.empty()) {
        at = fmt::format("{}:{}", given.address, given.port + 1000 * m.world);
        if (m.rank == 0)
          hosted_.try_emplace(m.world, rt, at, given.network.may_leave_loopback());
      }
      of_.try_emplace(m.world, rt, at);
    }
  }
  [[nodiscard]] mw::store& of(const membership& m) {
    if (of_the_job_) return *of_the_job_;
    return of_.at(m.world);
  }

 private:
  std::optional<mw::launch_store> of_the_job_;
  std::map<int, mw::hosted_store> hosted_;
  std::map<int, mw::tcp_store> of_;
};

/// Several processes share the machine, so a process that waits leaves it to the
/// others. The examples print errors themselves.
inline mw::runtime_options quiet() {
  return {.spin = mw::duration::zero(), .log_from = mw::log_level::silent};
}

inline mw::runtime_options arguments::runtime() const {
  if (job) {
    mw::runtime_options options = job->runtime();
    options.spin = quiet().spin;
    options.log_from = quiet().log_from;
    return options;
  }
  return network.apply(quiet(), store.empty() ? address : store);
}

inline mw::duration seconds(double count) {
  return std::chrono::duration_cast<mw::duration>(std::chrono::duration<double>(count));
}

/// A body for `mw::keep` that prints when its world comes up, and why it broke. If all
/// print to one terminal, only the starting process prints the beginning.
template <class Body>
auto telling(const arguments& given, std::string who, Body body) {
  const bool is_alone = given.parent == 0;
  return [is_alone, who = std::move(who), body](mw::world& w) -> mw::task<void> {
    if (is_alone || w.epoch() > 1)
      fmt::print("{}: {}@{} is up\n", who, w.name().view(), w.epoch());
    try {
      co_await body(w);
    } catch (const mw::world_error& e) {
      if (e.cause() != mw::cause::closed) fmt::print("{}: {}\n", who, e.what());
      throw;
    }
  };
}
