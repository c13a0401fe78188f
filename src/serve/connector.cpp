#include "serve/connector.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "serve/peer_world.hpp"
#include "serve/supervision.hpp"
#include "world/control_message.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0::detail {

connector::connector(runtime& rt, store& st, const connect_options& options)
    : runtime_(rt),
      options_(options),
      id_(access::core(rt).random_word()),
      world_options_(peer_world_options(options.world, options.service, id_, 1)),
      key_(join_record::key(world_options_.name, 1)),
      queue_(access::core(rt), st, options.service) {
  check_service("connect", options.service, options.world);
}

connector::~connector() {
  access::core(runtime_).worlds().views().forget(world_options_.name);
}

world connector::describe() {
  desk_.emplace(queue_.place());
  return world(runtime_, *desk_, world_options_);
}

task<void> connector::form(world& w) {
  pause_ = first_check;
  patience_ = first_patience;
  taken_in_vain_ = 0;
  is_waiting_told_ = false;
  noticed_.reset();
  entered_.reset();
  co_await forget_notices();
  auto formed = [](world& forming) -> task<void> { co_await forming; };
  co_await when_any(formed(w), stay_announced(), heed_notices());
  // The world came before its notice was read.
  if (entered_.is_set()) co_await forget_notices();
}

// An acceptor that had to try again leaves a second notice, and so does one that has lost
// us to another. One that is left over must not be taken for that of the next world, nor
// stay in the store behind us.
task<void> connector::forget_notices() {
  if (!was_announced_) co_return;
  try {
    co_await queue_.erase_notice(id_);
  } catch (const store_error& e) {
    access::core(runtime_).log(log_level::debug, e.what());
  }
}

// Between a notice and our next entry no notice is awaited: mostly the world is formed
// then, and a wait that is cancelled costs its connection to the store.
task<void> connector::heed_notices() {
  for (;;) {
    co_await entered_;
    bool has_come = true;
    try {
      co_await queue_.await_notice(id_);
    } catch (const store_error&) {
      // The checks, which go on, say what is wrong with the store.
      has_come = false;
    }
    if (!has_come) {
      co_await sleep_for(first_check);
      continue;
    }
    entered_.reset();
    check_at_ = runtime_.home().now() + patience_;
    patience_ = std::min(2 * patience_, longest_check);
    // It has had its time by then.
    is_missing_ = true;
    noticed_.set();
  }
}

task<void> connector::until_check() {
  co_await noticed_;
  co_await sleep_until(check_at_);
  noticed_.reset();
}

// Runs for as long as the forming does. The forming writes its record again every
// second, and another one for each try: this waits for those.
task<void> connector::stay_announced() {
  std::string announced;
  MW_ASSERT(desk_, "a world is described before it is formed");
  for (;;) {
    auto first = co_await when_any(desk_->get(key_, duration::max()), until_check());
    std::string record = std::get<0>(first) ? std::move(*std::get<0>(first)) : announced;
    if (std::get<0>(first)) co_await desk_->erase(key_);
    const bool is_new = record != announced;
    if (!is_new && runtime_.home().now() < check_at_) continue;
    announced = record;
    duration pause = longest_check;
    try {
      pause = co_await announce(join_entry(id_, std::move(record)), is_new);
      note_store(nullptr);
    } catch (const store_error& e) {
      note_store(e.what());
    }
    check_at_ = runtime_.home().now() + pause;
  }
}

task<duration> connector::announce(join_entry self, bool is_new) {
  const bool stands = !is_new && co_await queue_.holds(self);
  // It is missing for the first time: the acceptor that has taken it may be about to
  // propose.
  if (!is_new && !stands && !std::exchange(is_missing_, true)) co_return first_check;
  if (stands) note_waiting();
  // It counts as missing until it is entered: the store may fail us.
  is_missing_ = true;
  // Said before: an entry may stand although the store did not answer.
  was_announced_ = true;
  if (!stands) co_await queue_.enter(std::move(self));
  entered_.set();
  if (!stands && !is_new) note_taken_in_vain();
  is_missing_ = false;
  co_return std::exchange(pause_, std::min(2 * pause_, longest_check));
}

// The world's own log lines name a rank 0 that has not proposed. This line says that an
// acceptor is awaited, and where.
void connector::note_waiting() {
  if (std::exchange(is_waiting_told_, true)) return;
  access::core(runtime_).log(
      log_level::warning,
      fmt::format("connect {}: we stand in the join queue of the store {}, and no "
                  "acceptor of the service has taken us yet",
                  options_.service.view(), queue_.place().address()));
}

// Only the acceptor knows why, and cannot tell us: it does not meet us.
void connector::note_taken_in_vain() {
  if (++taken_in_vain_ != told_when_taken) return;
  access::core(runtime_).log(
      log_level::warning,
      fmt::format("connect {}: an acceptor has taken us from the join queue {} times, "
                  "but no world was formed: has it the same secret and version, and can "
                  "it reach {}? The acceptor's log says more",
                  options_.service.view(), told_when_taken,
                  access::core(runtime_).self().text()));
}

void connector::note_store(const char* trouble) {
  if (std::exchange(store_answers_, !trouble) == !trouble) return;
  access::core(runtime_).log(
      trouble ? log_level::warning : log_level::info,
      fmt::format("connect {}: {}", options_.service.view(),
                  trouble
                      ? std::string(trouble) + "; no acceptor finds us until it answers"
                      : "the store answers again"));
}

task<void> run_connect(runtime& rt, store& st, connect_options options,
                       std::unique_ptr<kept_body> body, after_close closing) {
  connector way(rt, st, options);
  co_await supervise(rt, way, *body, closing);
  co_await way.forget_notices();
}

}  // namespace manyworlds::inline v0::detail
