// Node source: workers on several machines, which the agents of these start.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "manyworlds/serve/hosted_store.hpp"
#include "manyworlds/spmd/session_options.hpp"
#include "manyworlds/store/tcp_store.hpp"
#include "spmd/node_link.hpp"
#include "spmd/worker_source.hpp"

namespace manyworlds::inline v0::detail {

/// The store of this process is where agents and workers meet, with the secret of the
/// runtime. Worker k is on node k / `workers_per_node`.
class node_source final : public worker_source {
 public:
  /// Errors: those of `hosted_store`.
  node_source(runtime& controller, const nodes& how);

  /// Returns where agents join, with the port that was chosen.
  [[nodiscard]] std::string address() const { return host_.address(); }

  [[nodiscard]] store& meeting() noexcept override { return store_; }
  void name_session(const std::string& name, int workers) override {
    session_ = name;
    count_ = workers;
  }
  [[nodiscard]] task<void> run(event& over) override;
  [[nodiscard]] task<void> start(int worker, std::uint64_t incarnation) override;
  [[nodiscard]] task<std::string> ended(int worker) override;
  [[nodiscard]] task<void> end(int worker, duration patience) override;
  [[nodiscard]] std::int64_t pid(int worker) const noexcept override;
  [[nodiscard]] node_relay* relay(int worker) noexcept override {
    return &node_of(worker).relay();
  }

 private:
  [[nodiscard]] node_link& node_of(int worker) const noexcept;

  const nodes how_;
  hosted_store host_;
  tcp_store store_;
  std::string session_;
  int count_ = 0;
  std::vector<std::unique_ptr<node_link>> nodes_;
};

}  // namespace manyworlds::inline v0::detail
