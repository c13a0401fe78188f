#include "manyworlds/serve/acceptor.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/stop.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/world/control_message.hpp"
#include "manyworlds/world/outcome.hpp"
#include "manyworlds/world/runtime_core.hpp"
#include "manyworlds/world/store_trouble.hpp"
#include "peer_world.hpp"

namespace manyworlds::inline v0 {

acceptor::acceptor(runtime& rt, store& st, const accept_options& options)
    : runtime_(rt),
      options_(options),
      name_("accept " + options.service.str()),
      list_(rt.core(), st, options.service),
      pause_(rt.core()) {
  check_service("accept", options.service, options.world);
  if (options.most == 0) {
    throw world_error(
        failure(cause::invalid_argument, "accept: at most 0 worlds at a time"));
  }
}

task<std::vector<waiting_peer>> acceptor::next(std::stop_token until) {
  std::vector<waiting_peer> peers;
  auto runtime_stops = [this]() -> task<void> {
    co_await runtime_.core().stopping().wait();
  };
  try {
    auto ended = co_await stop_on(when_any(runtime_stops(), take()), std::move(until));
    if (auto& taken = std::get<1>(ended)) peers = std::move(*taken);
  } catch (const stopped&) {
    // No peer was taken.
  }
  co_return peers;
}

task<std::vector<waiting_peer>> acceptor::take() {
  for (;;) {
    while (met_.size() >= options_.most) {
      has_room_.reset();
      co_await has_room_;
    }
    MW_ASSERT(met_.size() < options_.most, "an acceptor takes only with room");
    std::vector<waiting_peer> taken;
    try {
      auto ended =
          co_await when_any(list_.take(options_.most - met_.size()),
                            tell_of_trouble(runtime_.core(), name_, list_.place()));
      if (auto& some = std::get<0>(ended)) taken = std::move(*some);
      // Drop a second entry of a peer that we took more slowly than it waits.
      std::erase_if(taken, [this](const waiting_peer& who) { return is_met(who); });
      note_store(nullptr);
    } catch (const store_error& e) {
      note_store(e.what());
    }
    if (!taken.empty()) co_return taken;
    co_await sleep_for(pause_.next());
  }
}

bool acceptor::is_met(const waiting_peer& who) const noexcept {
  return std::any_of(met_.begin(), met_.end(),
                     [&](const met_peer* each) { return each->is(who); });
}

void acceptor::note_store(const char* trouble) {
  if (!trouble) pause_.was_up_for(duration::max());
  if (std::exchange(store_answers_, !trouble) == !trouble) return;
  runtime_.core().log(
      trouble ? log_level::warning : log_level::info,
      fmt::format("accept {}: {}", options_.service.view(),
                  trouble ? std::string(trouble) + "; no peer is taken until it answers"
                          : "the store answers again"));
}

std::unique_ptr<met_peer> acceptor::meet(waiting_peer who) {
  return std::make_unique<met_peer>(*this, std::move(who));
}

task<void> acceptor::close() {
  try {
    co_await list_.tidy();
  } catch (const store_error& e) {
    runtime_.core().log(log_level::debug, e.what());
  }
}

task<store_reply> single_try_store::perform(store_request request) {
  const bool reads = request.operation == store_operation::get ||
                     request.operation == store_operation::try_get;
  if (reads && request.keys.front() == peer_key_ && was_read_.exchange(true)) {
    throw store_error(store_failure(
        store_error_kind::refused, address(), request.operation, std::move(request.keys),
        duration::zero(), "the peer is gone, or waits again with another entry"));
  }
  return under_.perform(std::move(request));
}

met_peer::met_peer(acceptor& by, waiting_peer who)
    : acceptor_(by),
      who_(std::move(who)),
      options_(peer_world_options(by.options_.world, by.options_.service, who_.id, 0)),
      store_(join_record::key(options_.name, 1)),
      world_(by.runtime_, store_, options_) {
  MW_ASSERT(by.met_.size() < by.options_.most,
            "an acceptor has room for each peer that it meets");
  by.met_.push_back(this);
}

met_peer::~met_peer() {
  [[maybe_unused]] const auto erased = std::erase(acceptor_.met_, this);
  MW_ASSERT(erased == 1, "a peer that was met is listed once, until its end");
  acceptor_.has_room_.set();
  // The peer knows the epochs of its name, which may never appear here again.
  acceptor_.runtime_.core().worlds().forget_epoch(options_.name);
}

task<void> met_peer::form() {
  co_await store_.set(join_record::key(options_.name, 1), who_.record);
  auto formed = [](world& forming) -> task<void> { co_await forming; };
  bool is_stopped = false;
  try {
    co_await stop_on(formed(world_), acceptor_.runtime_.draining());
  } catch (const stopped&) {
    is_stopped = true;
  }
  if (!is_stopped) co_return;
  throw world_error(world_.core()->describe_failure(
      cause::runtime_stopped, world_.rank(), operation_kind::form,
      "the runtime of the acceptor is stopping"));
}

failure met_peer::note_body_threw() {
  manyworlds::note_body_threw(acceptor_.runtime_.core(), world_, "accept",
                              handled_exception_text());
  return world_ ? world_.failure() : failure();
}

task<void> met_peer::part(failure failed) {
  // If the body has moved its world away there is nothing to end.
  if (!world_) co_return;
  const world_state now = world_.state();
  if (now == world_state::up && failed && failed.cause != cause::closed)
    world_.fail(failed.text());
  if (failed && world_.epoch() == 0) {
    acceptor_.runtime_.core().log(
        log_level::info, fmt::format("accept {}: not met: {}",
                                     acceptor_.options_.service.view(), failed.text()));
  }
  // A break meanwhile changes nothing: the body has ended.
  if (world_.state() != world_state::broken) (void)co_await outcome(world_.leave());
  co_await world_.drained();
}

}  // namespace manyworlds::inline v0
