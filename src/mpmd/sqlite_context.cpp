#include "mpmd/sqlite_context.hpp"

#include <utility>

#include "io/signals_blocked.hpp"
#include "manyworlds/coro/offload.hpp"

namespace manyworlds::inline v0::detail {

// Both start within the block: signals are the application's. So is SIGXFSZ, which a
// write beyond a limit of the process would bring; blocked, the write tells.
sqlite_context::sqlite_context(std::string path, context_file_options options)
    : file_(std::move(path), options), thread_([] {
        const signals_blocked blocked;
        return worker_thread("mw-context");
      }()) {}

task<std::uint64_t> sqlite_context::term() {
  const auto asking = [this] { return file_.term(); };
  co_return co_await offload(thread_, asking);
}

task<std::uint64_t> sqlite_context::take_term(std::uint64_t seen) {
  const auto taking = [this, seen] { return file_.take_term(seen); };
  co_return co_await offload(thread_, taking);
}

task<context_values> sqlite_context::load() {
  const auto loading = [this] { return file_.load(); };
  co_return co_await offload(thread_, loading);
}

task<void> sqlite_context::write(std::uint64_t term, std::vector<context_write> changes) {
  const auto writing = [&] { file_.write(term, changes); };
  co_await offload(thread_, writing);
}

}  // namespace manyworlds::inline v0::detail
