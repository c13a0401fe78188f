// SQLite context: a job's context in a file, for masters of one host.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "manyworlds/coro/worker_thread.hpp"
#include "mpmd/context_file.hpp"
#include "mpmd/context_store.hpp"

namespace manyworlds::inline v0::detail {

/// Keeps the context in one file, and calls it on a thread of its own, since a disk takes
/// its time. A cancelled operation that has begun is waited for: at most the patience and
/// what the disk takes.
///
///     sqlite_context kept("/run/user/1000/serving.context");
///     const std::uint64_t seen = co_await kept.term();
///     const std::uint64_t mine = co_await kept.take_term(seen);
///     const context_values known = co_await kept.load();
///     co_await kept.write(mine, {{"decode.1", "incarnation 2 on node 0"}});
class sqlite_context final : public context_store {
 public:
  /// Opens no file yet. Errors: context_error (`unsupported`) if libsqlite3 is missing;
  /// std::system_error if there can be no other thread.
  explicit sqlite_context(std::string path, context_file_options options = {});

  task<std::uint64_t> term() override;
  task<std::uint64_t> take_term(std::uint64_t seen) override;
  task<context_values> load() override;
  task<void> write(std::uint64_t term, std::vector<context_write> changes) override;
  [[nodiscard]] std::string where() const override { return "sqlite:" + file_.path(); }

 private:
  context_file file_;  ///< used on the thread alone, and closed when that has ended
  worker_thread thread_;
};

}  // namespace manyworlds::inline v0::detail
