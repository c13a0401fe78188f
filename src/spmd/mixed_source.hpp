// Mixed source: worker 0 is a thread of this process, the others are processes.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "spmd/process_source.hpp"
#include "spmd/thread_source.hpp"

namespace manyworlds::inline v0::detail {

/// Two sources, of which all workers meet at the store of the processes.
class mixed_source final : public worker_source {
 public:
  /// Errors: those of `process_source`.
  mixed_source(runtime& controller, process_options how, const function_table& functions,
               const session_options& limits)
      : others_(controller, std::move(how), limits),
        first_(controller, functions, limits, &others_.meeting()) {}

  [[nodiscard]] store& meeting() noexcept override { return others_.meeting(); }
  void name_session(const std::string& name, int workers) override {
    others_.name_session(name, workers);
    first_.name_session(name, workers);
  }
  [[nodiscard]] task<void> start(int worker, std::uint64_t incarnation) override {
    return source_of(worker).start(worker, incarnation);
  }
  [[nodiscard]] task<std::string> ended(int worker) override {
    return source_of(worker).ended(worker);
  }
  [[nodiscard]] task<void> end(int worker, duration patience) override {
    return source_of(worker).end(worker, patience);
  }
  [[nodiscard]] std::int64_t pid(int worker) const noexcept override {
    return worker == 0 ? first_.pid(worker) : others_.pid(worker);
  }
  [[nodiscard]] local_places* locals(int worker) noexcept override {
    return source_of(worker).locals(worker);
  }

 private:
  [[nodiscard]] worker_source& source_of(int worker) noexcept {
    if (worker == 0) return first_;
    return others_;
  }

  process_source others_;
  thread_source first_;  // ends before the store at which it meets the others
};

}  // namespace manyworlds::inline v0::detail
