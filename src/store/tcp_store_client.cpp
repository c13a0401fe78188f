#include "tcp_store_client.hpp"

#include <algorithm>
#include <span>
#include <system_error>
#include <utility>

#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/io/environment.hpp"
#include "manyworlds/io/resolve.hpp"

namespace manyworlds::inline v0 {

namespace {

// For asking, after a wait has ended at its limit, which keys are missing.
constexpr duration last_question = std::chrono::milliseconds(100);

std::uint64_t fresh_seed() {
  std::uint64_t seed = 0;
  system_environment().fill_random(std::as_writable_bytes(std::span(&seed, 1)));
  return seed;
}

duration remaining(time_point until, time_point now) noexcept {
  return until == time_point::max() ? duration::max() : until - now;
}

}  // namespace

tcp_store::client::operation::operation(store_request r, time_point now)
    : request(std::move(r)), start(now), deadline(later(now, request.limit)) {
  wire_keys.reserve(request.keys.size());
  for (const std::string& key : request.keys) wire_keys.push_back("/" + key);
}

bool tcp_store::client::operation::waits_for_keys() const noexcept {
  return request.operation == store_operation::get ||
         request.operation == store_operation::wait;
}

bool tcp_store::client::operation::is_repeatable() const noexcept {
  return request.operation != store_operation::add &&
         request.operation != store_operation::compare_set;
}

tcp_store::client::client(reactor& home, std::string endpoint,
                          const tcp_store_options& options)
    : home_(home),
      endpoint_(std::move(endpoint)),
      options_(options),
      places_(std::max<std::size_t>(options.connections, 1)),
      random_(options.seed ? *options.seed : fresh_seed()) {}

task<store_reply> tcp_store::client::run(store_request request) {
  operation op(std::move(request), now());
  duration pause = options_.first_pause;
  std::string reason = "no answer";
  for (;;) {
    bool is_over = false;
    duration left = remaining(op.deadline, now());
    if (op.waits_for_keys() && left < duration::max() - last_question)
      left += last_question;
    try {
      co_return co_await within(attempt(op), left);
    } catch (const timed_out&) {
      is_over = true;
    } catch (const connection_lost& lost) {
      reason = lost.what();
    } catch (const protocol_broken& broken) {
      throw error(op, store_error_kind::protocol, broken.what());
    }
    if (is_over || now() >= op.deadline || (op.was_sent && !op.is_repeatable())) {
      throw error(op, store_error_kind::unreachable, std::move(reason));
    }
    if (op.was_reused) {
      // The store has gone and perhaps come back since: the others are no better.
      idle_.clear();
    } else {
      co_await sleep_until(std::min(op.deadline, later(now(), shortened(pause))));
      pause = std::min(pause + pause / 2, options_.longest_pause);
    }
  }
}

task<store_reply> tcp_store::client::attempt(operation& op) {
  op.was_sent = false;
  op.was_reused = false;
  if (op.request.operation == store_operation::get) return get(op);
  if (op.request.operation == store_operation::wait) return wait(op);
  return ask(op);
}

// --------------------------------------------------------------------------------------

task<tcp_store::client::connection_ptr> tcp_store::client::take(operation& op) {
  op.was_reused = !idle_.empty();
  if (!op.was_reused) co_return co_await connect();
  connection_ptr c = std::move(idle_.back());
  idle_.pop_back();
  co_return c;
}

void tcp_store::client::give_back(connection_ptr c) {
  if (c->is_open() && idle_.size() < options_.idle_connections)
    idle_.push_back(std::move(c));
}

task<tcp_store::client::connection_ptr> tcp_store::client::connect() {
  try {
    co_return co_await within(dial(), options_.connect_limit);
  } catch (const timed_out&) {
    throw connection_lost("no answer while connecting");
  }
}

task<tcp_store::client::connection_ptr> tcp_store::client::dial() {
  const resolution found = co_await resolve(endpoint_);
  if (!found.ok()) throw connection_lost(found.failure());
  int failure = 0;
  for (const socket_address& address : found.addresses()) {
    stream s;
    const io_result connected = co_await stream::connect(home_, address, s);
    if (!connected.ok()) {
      failure = connected.error();
      continue;
    }
    auto c = std::make_unique<tcp_store_connection>(std::move(s), options_.limits);
    co_await c->greet(nonce());
    co_return c;
  }
  throw connection_lost("connecting: " + std::generic_category().message(failure));
}

// --------------------------------------------------------------------------------------

store_error tcp_store::client::error(const operation& op, store_error_kind kind,
                                     std::string reason) const {
  store_failure failure(kind, "tcp://" + endpoint_, op.request.operation, op.request.keys,
                        now() - op.start, std::move(reason));
  failure.may_have_happened =
      kind == store_error_kind::unreachable && op.was_sent && !op.is_repeatable();
  return store_error(std::move(failure));
}

duration tcp_store::client::shortened(duration pause) noexcept {
  return pause - random_.at_most(pause / 2);
}

}  // namespace manyworlds::inline v0
