// Process source: workers that are processes of this machine.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "manyworlds/launch/process_options.hpp"
#include "manyworlds/launch/supervised_process.hpp"
#include "manyworlds/serve/hosted_store.hpp"
#include "manyworlds/spmd/session_options.hpp"
#include "manyworlds/store/tcp_store.hpp"
#include "spmd/worker_source.hpp"

namespace manyworlds::inline v0::detail {

/// Ends the process of a worker, after `patience` by force, and all that descends from
/// it. Errors: none; what cannot be ended is logged. Lifetime: the process outlives the
/// task.
[[nodiscard]] task<void> end_process(runtime& rt, supervised_process& process,
                                     duration patience);

/// Each worker is a supervised process. They meet at a store of this process, on loopback
/// and with a secret that only they are given.
class process_source final : public worker_source {
 public:
  /// Errors: those of `hosted_store`.
  process_source(runtime& controller, process_options how, const session_options& limits);

  [[nodiscard]] store& meeting() noexcept override { return store_; }
  void name_session(const std::string& name, int workers) override {
    session_ = name;
    count_ = workers;
  }
  [[nodiscard]] task<void> start(int worker, std::uint64_t incarnation) override;
  [[nodiscard]] task<std::string> ended(int worker) override;
  [[nodiscard]] task<void> end(int worker, duration patience) override;
  [[nodiscard]] std::int64_t pid(int worker) const noexcept override;

 private:
  [[nodiscard]] std::shared_ptr<supervised_process> find(int worker) const noexcept;

  runtime& runtime_;
  const process_options how_;
  const session_options limits_;
  const secret_text store_secret_;
  hosted_store host_;
  tcp_store store_;
  std::string session_;
  int count_ = 0;
  std::map<int, std::shared_ptr<supervised_process>> workers_;
};

}  // namespace manyworlds::inline v0::detail
