#include "spmd/process_source.hpp"

#include <fmt/format.h>

#include <utility>

#include "spmd/worker_invitation.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0::detail {

namespace {

/// 128 bits that only this process and its workers know; none in a build without OpenSSL.
secret_text fresh_store_secret([[maybe_unused]] runtime& rt) {
#if MANYWORLDS_HAS_SECRET
  runtime_core& core = access::core(rt);
  return secret_text(
      fmt::format("{:016x}{:016x}", core.random_word(), core.random_word()));
#else
  return {};
#endif
}

tcp_store_options options_with_secret(const secret_text& secret) {
  tcp_store_options options;
  options.secret = secret;
  return options;
}

}  // namespace

task<void> end_process(runtime& rt, supervised_process& process, duration patience) {
  try {
    // By itself first: its control world has told it to.
    (void)co_await process.ended().within(patience);
  } catch (const timed_out&) {
    // By force, below.
  }
  try {
    // Also what descends from it.
    co_await process.stop(grace(duration::zero()));
  } catch (const process_error& e) {
    access::core(rt).log(log_level::error, e.what());
  }
}

process_source::process_source(runtime& controller, process_options how,
                               const session_options& limits)
    : runtime_(controller),
      how_(std::move(how)),
      limits_(limits),
      store_secret_(fresh_store_secret(controller)),
      host_(controller, "127.0.0.1:0", hosted_store_options{.secret = store_secret_}),
      store_(controller, host_.address(), options_with_secret(store_secret_)) {}

std::shared_ptr<supervised_process> process_source::find(int worker) const noexcept {
  const auto at = workers_.find(worker);
  return at == workers_.end() ? nullptr : at->second;
}

std::int64_t process_source::pid(int worker) const noexcept {
  const auto found = find(worker);
  return found ? found->pid() : 0;
}

task<void> process_source::start(int worker, std::uint64_t incarnation) {
  process_options how = how_;
  const worker_invitation invitation{
      {session_, worker, count_, incarnation, limits_, worker}, host_.address()};
  how.set(worker_invitation::variable, invitation.text());
  how.set(worker_invitation::store_secret_variable, store_secret_.str());
  how.set(worker_invitation::link_secret_variable,
          access::core(runtime_).options().secret.str());
  how.restart({});
  auto process = std::make_shared<supervised_process>(runtime_, std::move(how));
  workers_[worker] = process;
  co_await process->started();
}

task<std::string> process_source::ended(int worker) {
  const auto process = find(worker);
  if (!process) co_return std::string();
  const exit_reason why = co_await process->ended();
  co_return why.text();
}

task<void> process_source::end(int worker, duration patience) {
  const auto process = find(worker);
  if (!process) co_return;
  co_await end_process(runtime_, *process, patience);
  if (find(worker) == process) workers_.erase(worker);
}

}  // namespace manyworlds::inline v0::detail
