// Thread source: workers that are threads of this process.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/worker_thread.hpp"
#include "manyworlds/spmd/function_table.hpp"
#include "manyworlds/spmd/session_options.hpp"
#include "manyworlds/store/memory_store.hpp"
#include "manyworlds/world/runtime.hpp"
#include "spmd/local_places.hpp"
#include "spmd/worker_loop.hpp"
#include "spmd/worker_source.hpp"

namespace manyworlds::inline v0::detail {

/// Each worker has a runtime. These are made and ended on a thread of their own, since
/// both take a while and an end may wait for a function that blocks.
class thread_source final : public worker_source {
 public:
  /// The workers meet at a store of their own, or at one that outlives them.
  thread_source(runtime& controller, const function_table& functions,
                const session_options& limits, store* meeting = nullptr);
  ~thread_source() override;

  [[nodiscard]] store& meeting() noexcept override { return *meeting_; }
  void name_session(const std::string& name, int workers) override {
    session_ = name;
    count_ = workers;
  }
  [[nodiscard]] task<void> start(int worker, std::uint64_t incarnation) override;
  [[nodiscard]] task<std::string> ended(int worker) override;
  [[nodiscard]] task<void> end(int worker, duration patience) override;
  [[nodiscard]] std::int64_t pid(int) const noexcept override { return 0; }
  [[nodiscard]] local_places* locals(int) noexcept override { return &locals_; }

 private:
  class worker_place;

  const runtime_options options_;
  const function_table& functions_;
  const session_options limits_;
  std::string session_;
  int count_ = 0;
  memory_store own_meeting_;
  store* const meeting_;
  local_places locals_;
  std::map<int, std::shared_ptr<worker_place>> workers_;
  worker_thread maker_;
};

}  // namespace manyworlds::inline v0::detail
