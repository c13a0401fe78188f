#include "manyworlds/serve/keep.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <string>

#include "duration_text.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "serve/supervision.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0::detail {

duration back_off::next() noexcept {
  MW_ASSERT(pause_ >= shortest && pause_ <= longest, "a pause stays in its limits");
  const duration now = pause_ + runtime_.jitter(pause_ / 2);
  pause_ = std::min(longest, 2 * pause_);
  return now;
}

void back_off::was_up_for(duration span) noexcept {
  if (span >= steady) pause_ = shortest;
}

void tell_not_formed(const runtime_core& rt, const failure& why, duration next_try) {
  if (!rt.logs(log_level::warning)) return;
  rt.log(log_level::warning,
         fmt::format("{}; the next try is in {}", why.text(), duration_text(next_try)));
}

task<bool> pause_unless_stopping(runtime& rt, duration pause) {
  try {
    co_await stop_on(sleep_for(pause), rt.draining());
  } catch (const stopped&) {
    co_return false;
  }
  co_return true;
}

void note_body_threw(runtime_core& rt, world& w, std::string_view caller,
                     std::string_view text) {
  ++rt.serving().bodies_failed;
  // A body may have moved its world away.
  const std::string where =
      w ? fmt::format("{} {}@{}", caller, w.name().view(), w.epoch())
        : std::string(caller);
  rt.log(log_level::error,
         fmt::format("{}: the body ended by an exception: {}", where, text));
  if (!w) return;
  w.fail(fmt::format("the body of {} ended by an exception: {}", caller, text));
}

bool is_worth_another_try(const failure& f) noexcept {
  switch (f.cause) {
    case cause::invalid_argument:
    case cause::size_disagrees:
    case cause::wrong_version:
    case cause::forked:
      return false;
    case cause::wrong_secret:
      // Rank 0, which refuses here, has the secret that counts. Another member that was
      // refused may yet be replaced by one with the right secret.
      return f.rank != 0;
    default:
      return true;
  }
}

task<void> run_keep(runtime& rt, store& st, world_options options,
                    std::unique_ptr<kept_body> body, after_close closing) {
  kept_rendezvous way(rt, st, options);
  co_await supervise(rt, way, *body, closing);
}

}  // namespace manyworlds::inline v0::detail
