// System process host: starts programs on this machine.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "io/memory_kills.hpp"
#include "io/process_handle.hpp"
#include "io/process_host.hpp"
#include "io/process_tree.hpp"
#include "manyworlds/coro/worker_thread.hpp"

namespace manyworlds::inline v0::detail {

/// Thread: each reactor of the runtime. Two threads of its own begin with the first
/// program: one starts programs, since an `exec` from a slow file system may take
/// seconds, and since SIGKILL comes to children when the thread ends that started them.
/// The other one walks through /proc and control groups.
class system_process_host final : public process_host {
 public:
  [[nodiscard]] task<start_outcome> start(const process_description& what,
                                          tree_listener* listener) override;
  [[nodiscard]] std::string take_notice() override;

  [[nodiscard]] worker_thread& finder() { return *finder_; }
  [[nodiscard]] memory_kills& kills() { return *kills_; }

 private:
  void begin();
  void empty_groups();
  [[nodiscard]] std::unique_ptr<process_tree> make_tree(tree_mark& mark);
  [[nodiscard]] start_outcome start_here(reactor& home, const process_description& what,
                                         tree_listener* listener);

  std::mutex mutex_;  ///< of what follows
  std::string group_folder_;
  std::string notice_;
  bool has_emptied_ = false;  ///< groups of dead starters
  std::optional<memory_kills> kills_;
  const std::shared_ptr<process_census> census_ =
      std::make_shared<process_census>(tree_variable);
  std::unique_ptr<worker_thread> finder_;
  std::unique_ptr<worker_thread> starter_;
};

}  // namespace manyworlds::inline v0::detail
