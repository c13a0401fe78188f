#include "serve/acceptor.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/stop.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/world/outcome.hpp"
#include "serve/peer_world.hpp"
#include "world/control_message.hpp"
#include "world/runtime_core.hpp"
#include "world/store_trouble.hpp"

namespace manyworlds::inline v0::detail {

acceptor::acceptor(runtime& rt, store& st, const accept_options& options)
    : runtime_(rt),
      options_(options),
      name_("accept " + options.service.str()),
      queue_(access::core(rt), st, options.service),
      pause_(access::core(rt)) {
  check_service("accept", options.service, options.world);
  if (options.most == 0) {
    throw world_error(
        failure(cause::invalid_argument,
                "accept: accept_options::most is 0, so no peer could ever be served"));
  }
}

task<std::vector<join_entry>> acceptor::next(std::stop_token until) {
  std::vector<join_entry> peers;
  auto runtime_stops = [this]() -> task<void> {
    co_await access::core(runtime_).stopping().wait();
  };
  try {
    auto ended = co_await stop_on(when_any(runtime_stops(), take()), std::move(until));
    if (auto& taken = std::get<1>(ended)) peers = std::move(*taken);
  } catch (const stopped&) {
    // No peer was taken.
  }
  co_return peers;
}

task<std::vector<join_entry>> acceptor::take() {
  for (;;) {
    while (met_.size() >= options_.most) {
      has_room_.reset();
      co_await has_room_;
    }
    MW_ASSERT(met_.size() < options_.most, "an acceptor takes only with room");
    std::vector<join_entry> taken;
    try {
      auto ended = co_await when_any(
          queue_.take(options_.most - met_.size()),
          tell_of_trouble(access::core(runtime_), name_, queue_.place()));
      if (auto& some = std::get<0>(ended)) taken = std::move(*some);
      // Drop a second entry of a peer that we took more slowly than it waits.
      std::erase_if(taken, [this](const join_entry& entry) { return is_met(entry); });
      note_store(nullptr);
    } catch (const store_error& e) {
      note_store(e.what());
    }
    if (!taken.empty()) co_return taken;
    co_await sleep_for(pause_.next());
  }
}

bool acceptor::is_met(const join_entry& entry) const noexcept {
  return std::any_of(met_.begin(), met_.end(),
                     [&](const accepted_peer* each) { return each->is(entry); });
}

void acceptor::note_store(const char* trouble) {
  if (!trouble) pause_.was_up_for(duration::max());
  if (std::exchange(store_answers_, !trouble) == !trouble) return;
  access::core(runtime_).log(
      trouble ? log_level::warning : log_level::info,
      fmt::format("accept {}: {}", options_.service.view(),
                  trouble ? std::string(trouble) + "; no peer is taken until it answers"
                          : "the store answers again"));
}

task<void> acceptor::forget(const join_entry& entry) {
  try {
    co_await queue_.erase_notice(entry.id);
  } catch (const store_error& e) {
    access::core(runtime_).log(log_level::debug, e.what());
  }
}

std::unique_ptr<accepted_peer> acceptor::meet(join_entry entry) {
  return std::make_unique<accepted_peer>(*this, std::move(entry));
}

task<void> acceptor::close() {
  try {
    co_await queue_.erase_if_empty();
  } catch (const store_error& e) {
    access::core(runtime_).log(log_level::debug, e.what());
  }
}

task<store_reply> single_try_store::perform(store_request request) {
  const bool reads = request.operation == store_operation::get ||
                     request.operation == store_operation::try_get;
  if (reads && request.keys.front() == peer_key_ && was_read_.exchange(true)) {
    throw store_error(store_failure(
        store_error_kind::refused, address(), request.operation, std::move(request.keys),
        duration::zero(),
        "the peer is gone, or stands in the join queue again with another entry"));
  }
  return under_.perform(std::move(request));
}

accepted_peer::accepted_peer(acceptor& by, join_entry entry)
    : acceptor_(by),
      entry_(std::move(entry)),
      options_(peer_world_options(by.options_.world, by.options_.service, entry_.id, 0)),
      store_(join_record::key(options_.name, 1)),
      world_(by.runtime_, store_, options_) {
  MW_ASSERT(by.met_.size() < by.options_.most,
            "an acceptor has room for each peer that it meets");
  by.met_.push_back(this);
}

accepted_peer::~accepted_peer() {
  [[maybe_unused]] const auto erased = std::erase(acceptor_.met_, this);
  MW_ASSERT(erased == 1, "a peer that was met is listed once, until its end");
  acceptor_.has_room_.set();
  // The peer knows the epochs of its name, which may never appear here again.
  access::core(acceptor_.runtime_).worlds().views().forget(options_.name);
}

task<void> accepted_peer::form() {
  co_await store_.set(join_record::key(options_.name, 1), entry_.record);
  auto formed = [](world& forming) -> task<void> { co_await forming; };
  bool is_stopped = false;
  try {
    co_await stop_on(formed(world_), acceptor_.runtime_.draining());
  } catch (const stopped&) {
    is_stopped = true;
  }
  if (!is_stopped) co_return;
  throw world_error(access::core(world_).describe_failure(
      cause::runtime_stopped, world_.rank(), operation_kind::form,
      "the runtime of the acceptor is stopping"));
}

failure accepted_peer::note_body_threw() {
  detail::note_body_threw(access::core(acceptor_.runtime_), world_, "accept",
                          handled_exception_text());
  return world_ ? world_.failure() : failure();
}

task<void> accepted_peer::part(failure failed) {
  // If the body has moved its world away there is nothing to end.
  if (!world_) co_return;
  const world_state now = world_.state();
  if (now == world_state::up && failed && failed.cause != cause::closed)
    world_.fail(failed.text());
  if (failed && world_.epoch() == 0) {
    access::core(acceptor_.runtime_)
        .log(log_level::info,
             fmt::format("accept {}: a peer was taken from the join queue, but its world "
                         "was not formed: {}",
                         acceptor_.options_.service.view(), failed.text()));
    co_await acceptor_.forget(entry_);
  }
  // A break meanwhile changes nothing: the body has ended.
  if (world_.state() != world_state::broken) (void)co_await outcome(world_.leave());
  co_await world_.drained();
}

namespace {

/// Serves one peer, from the moment it is taken to the end of its world.
task<void> serve_peer(std::unique_ptr<accepted_peer> peer, kept_body& body) {
  failure failed;
  try {
    co_await peer->form();
    co_await body.run_in(peer->met());
  } catch (const world_error& e) {
    failed = peer->is_of_it(e.failure()) ? e.failure() : peer->note_body_threw();
  } catch (const stopped&) {
    // The body waited for new work until `runtime::draining`: this counts as a return.
    if (!peer->is_runtime_stopping()) failed = peer->note_body_threw();
  } catch (...) {
    failed = peer->note_body_threw();
  }
  co_await peer->part(std::move(failed));
}

}  // namespace

task<void> run_accept(runtime& rt, store& st, accept_options options,
                      std::unique_ptr<kept_body> body, std::stop_token until) {
  acceptor door(rt, st, options);
  auto take_all = [&](scope& peers) -> task<void> {
    for (;;) {
      std::vector<join_entry> taken = co_await door.next(until);
      if (taken.empty()) co_return;
      for (join_entry& each : taken)
        peers.spawn(serve_peer(door.meet(std::move(each)), *body));
    }
  };
  co_await scope::run(take_all);
  co_await door.close();
}

}  // namespace manyworlds::inline v0::detail
