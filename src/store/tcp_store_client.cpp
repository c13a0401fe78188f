#include "store/tcp_store_client.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "io/system_environment.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "store/operation_facts.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

namespace {

// A connection that was used longer ago may have died without a notice.
constexpr duration rested = std::chrono::milliseconds(200);
// Time to ask, after a wait has ended at its limit, which keys are missing.
constexpr duration last_question = std::chrono::milliseconds(100);

std::uint64_t fresh_seed() {
  std::uint64_t seed = 0;
  system_environment().fill_random(std::as_writable_bytes(std::span(&seed, 1)));
  return seed;
}

/// A wait without a connection asks whether its keys are set, first after this time, by
/// which a healthy server has accepted it.
constexpr duration first_question = std::chrono::milliseconds(200);
constexpr duration longest_between_questions = std::chrono::seconds(1);
/// It also holds at the operation's end.
constexpr duration shortest_between_questions = std::chrono::milliseconds(10);
/// How often a wait is begun again at PyTorch's server that polls: there a compare_set
/// ends no wait. It is also the one that closes at a get of a key that is not set.
constexpr duration first_poll = std::chrono::milliseconds(5);
constexpr duration longest_poll = std::chrono::milliseconds(200);

std::string encoded_ping(std::uint32_t nonce) {
  tcp_store_message ping(tcp_store_opcode::ping);
  ping.number = nonce;
  std::string bytes;
  encode(ping, bytes);
  return bytes;
}

std::string encoded_cancel() {
  std::string bytes;
  encode(tcp_store_message(tcp_store_opcode::cancel_wait), bytes);
  return bytes;
}

std::string encoded_barrier(const std::string& key, std::int64_t members) {
  tcp_store_message barrier(tcp_store_opcode::barrier, {key});
  barrier.number = members;
  std::string bytes;
  encode(barrier, bytes);
  return bytes;
}

duration remaining(time_point until, time_point now) noexcept {
  return until == time_point::max() ? duration::max() : until - now;
}

}  // namespace

tcp_store::client::operation::operation(store_request r, time_point now,
                                        tcp_store_names names)
    : request(std::move(r)),
      question(request, names),
      start(now),
      deadline(later(now, request.limit)) {}

tcp_store::client::client(reactor& home, std::string endpoint,
                          const tcp_store_options& options)
    : home_(home),
      endpoint_(std::move(endpoint)),
      options_(options),
      places_(std::max<std::size_t>(options.connections, 1)),
      random_(options.seed ? *options.seed : fresh_seed()),
      health_(home),
      pool_(home, endpoint_, options_, health_, random_) {}

task<store_reply> tcp_store::client::run(store_request request, tcp_store_names names) {
  MW_ASSERT(home_.is_current(), "a client runs on its home");
  operation op(std::move(request), now(), names);
  duration pause = options_.first_pause;
  std::string reason;
  const store_health::question asked(health_);
  for (;;) {
    bool is_over = false;
    duration left = remaining(op.deadline, now());
    if (waits_for_others(op.request.operation) && left < duration::max() - last_question)
      left += last_question;
    try {
      store_reply reply = co_await within(attempt(op), left);
      health_.note_answer();
      co_return reply;
    } catch (const timed_out&) {
      is_over = true;
    } catch (const connection_lost& lost) {
      reason = lost.what();
      health_.note_failure(reason);
    } catch (const protocol_broken& broken) {
      health_.note_failure(broken.what());
      throw error(op, store_error_kind::protocol, broken.what());
    } catch (const secret_refused& refused) {
      health_.note_failure(refused.what());
      throw error(op, store_error_kind::refused, refused.what());
    }
    if (is_over || now() >= op.deadline ||
        (op.was_sent && !is_repeatable(op.request.operation))) {
      if (reason.empty())
        reason = op.use.is_connecting ? "no answer while connecting" : "no answer";
      throw error(op, store_error_kind::unreachable, std::move(reason));
    }
    if (op.use.was_reused) {
      // The store went away and perhaps came back since, so the other idle connections
      // are no better.
      pool_.close_idle();
    } else {
      co_await sleep_until(std::min(op.deadline, later(now(), shortened(pause))));
      pause = std::min(pause + pause / 2, options_.longest_pause);
    }
  }
}

task<store_reply> tcp_store::client::attempt(operation& op) {
  op.was_sent = false;
  op.use = {};
  switch (op.request.operation) {
    case store_operation::get:
    case store_operation::multi_get:
    case store_operation::pop:
      return get(op);
    case store_operation::wait:
      return wait(op);
    case store_operation::barrier:
      return meet(op);
    default:
      return ask(op);
  }
}

/// Takes a connection that an operation which is not repeated can be sent over. The pool
/// gives none that is known to be over; one that has rested may have died without a
/// notice, so a ping comes first.
task<tcp_store_pool::connection> tcp_store::client::take_proven(operation& op) {
  connection_ptr c = co_await pool_.take(op.use);
  if (!op.use.was_reused || is_repeatable(op.request.operation)) co_return c;
  if (now() - c->last_used() < rested) co_return c;
  const std::uint32_t nonce = pool_.nonce();
  co_await c->send(encoded_ping(nonce));
  co_await answered(c->expect_ping(nonce), true);
  co_return c;
}

/// Performs an operation that waits only for its answer.
task<store_reply> tcp_store::client::ask(operation& op) {
  const turnstile::place place = co_await places_.enter();
  connection_ptr c = co_await take_proven(op);
  const bool is_suspect = op.use.was_reused && is_repeatable(op.request.operation);
  store_reply reply = co_await answered(reply_of(op, *c), is_suspect);
  pool_.give_back(std::move(c));
  co_return reply;
}

task<store_reply> tcp_store::client::reply_of(operation& op, tcp_store_connection& c) {
  op.was_sent = true;
  switch (op.request.operation) {
    case store_operation::try_get:
    case store_operation::try_pop: {
      auto found = co_await fetch(op.question, c, closes_on_missing_);
      co_return std::move(found).value_or(store_reply());
    }
    default:
      co_return co_await exchange(op.question, c, pool_.nonce());
  }
}

/// Waits for what a get, a multi_get or a pop wants. Each question takes its turn like
/// any operation, so that a thousand gets of keys that are set need no more connections
/// than others. Waiting takes no turn: it could keep out the very operation that sets
/// the key.
task<store_reply> tcp_store::client::get(operation& op) {
  connection_ptr c;
  for (;;) {
    std::optional<store_reply> found;
    if (c) {
      op.was_sent = true;
      found = co_await fetch(op.question, *c, closes_on_missing_);
    } else {
      const turnstile::place place = co_await places_.enter();
      c = co_await take_proven(op);
      const bool is_suspect = op.use.was_reused && is_repeatable(op.request.operation);
      op.was_sent = true;
      found = co_await answered(fetch(op.question, *c, closes_on_missing_), is_suspect);
    }
    health_.note_answer();
    // What was asked has been answered: nothing was taken.
    if (!found) op.was_sent = false;
    if (!found && now() >= op.deadline) co_await time_out(op, std::move(c));
    if (found) {
      pool_.give_back(std::move(c));
      co_return std::move(*found);
    }
    co_await await_keys(op, c);
  }
}

/// Ends a wait at its limit; the error names the keys that are missing.
task<void> tcp_store::client::time_out(operation& op, connection_ptr c) {
  if (op.request.operation == store_operation::multi_get && c && c->is_open()) {
    std::vector<std::string> missing = co_await missing_keys(op.question, *c);
    if (!missing.empty()) op.request.keys = std::move(missing);
  }
  pool_.give_back(std::move(c));
  throw error(op, store_error_kind::timed_out, "not set by anyone");
}

/// Arrives at a barrier, once: what was sent is not repeated.
task<store_reply> tcp_store::client::meet(operation& op) {
  connection_ptr c = pool_.take_idle(op.use);
  if (!c || !pool_.may_keep_one() || now() - c->last_used() >= rested) {
    pool_.give_back(std::move(c));
    op.use = {};
    c = co_await pool_.take_own(op.use);
  }
  const tcp_store_pool::counted kept = pool_.keep();
  const store_health::parked_question no_answer_is_due(health_);
  op.was_sent = true;
  co_await c->send(encoded_barrier(op.question.wire_keys.front(), op.request.delta));
  std::optional<std::uint8_t> reply;
  try {
    reply = co_await within(c->read_u8(), remaining(op.deadline, now()));
  } catch (const timed_out&) {}
  if (!reply) {
    co_await c->send(encoded_cancel());
    reply = co_await answered(c->read_u8(), true);
    if (*reply == tcp_store_wait_cancelled) {
      pool_.give_back(std::move(c));
      throw error(op, store_error_kind::timed_out,
                  fmt::format("not all {} members have arrived", op.request.delta));
    }
    co_await expect_cancelled(*c);
  }
  if (*reply != tcp_store_ready)
    throw protocol_broken("the reply to a barrier is not one of the protocol");
  pool_.give_back(std::move(c));
  co_return store_reply();
}

task<store_reply> tcp_store::client::wait(operation& op) {
  connection_ptr c = pool_.take_idle(op.use);
  if (!co_await await_keys(op, c)) {
    if (!c) c = co_await pool_.take(op.use);
    std::vector<std::string> missing = co_await missing_keys(op.question, *c);
    if (!missing.empty()) {
      pool_.give_back(std::move(c));
      op.request.keys = std::move(missing);
      throw error(op, store_error_kind::timed_out, "not set by anyone");
    }
  }
  pool_.give_back(std::move(c));
  co_return store_reply();
}

task<bool> tcp_store::client::await_keys(operation& op, connection_ptr& c) {
  if (c && c->is_open() && pool_.may_keep_one()) co_return co_await keep_and_wait(op, *c);
  pool_.give_back(std::move(c));
  c = nullptr;
  auto first = co_await when_any(pool_.take_own(op.use), ask_now_and_then(op));
  if (std::get<0>(first)) c = std::move(*std::get<0>(first));
  if (std::get<1>(first)) co_return *std::get<1>(first);
  co_return co_await keep_and_wait(op, *c);
}

task<bool> tcp_store::client::keep_and_wait(operation& op, tcp_store_connection& c) {
  const tcp_store_pool::counted kept = pool_.keep();
  const store_health::parked_question no_answer_is_due(health_);
  co_return co_await wait_for_keys(op, c);
}

/// Asks over any idle connection. Where none ever is, the operation's limit ends it.
task<bool> tcp_store::client::ask_now_and_then(operation& op) {
  duration pause = first_question;
  for (;;) {
    co_await sleep_until(std::max(later(now(), shortest_between_questions),
                                  std::min(op.deadline, later(now(), pause))));
    pause = std::min(2 * pause, longest_between_questions);
    operation aside(op.request, now());
    connection_ptr c = pool_.take_idle(aside.use);
    if (!c) continue;
    std::optional<std::vector<std::string>> missing;
    try {
      missing = co_await answered(missing_keys(aside.question, *c), true);
    } catch (const connection_lost&) {
      // Another connection serves as well.
    }
    if (!missing) continue;
    health_.note_answer();
    pool_.give_back(std::move(c));
    if (missing->empty()) co_return true;
    if (now() >= op.deadline) co_return false;
  }
}

/// Reads the answer to a cancellation that a reply has overtaken.
task<void> tcp_store::client::expect_cancelled(tcp_store_connection& c) {
  const std::uint8_t answer = co_await c.read_u8();
  if (answer != tcp_store_wait_cancelled)
    throw protocol_broken("the reply to a cancelled wait is not one of the protocol");
}

/// Returns false at the deadline. It asks periodically whether the store still answers:
/// it cancels the wait, which needs a reply, and waits again.
task<bool> tcp_store::client::wait_for_keys(operation& op, tcp_store_connection& c) {
  std::string wait;
  encode(tcp_store_message(tcp_store_opcode::wait, op.question.wire_keys), wait);
  duration look = closes_on_missing_ ? first_poll : options_.probe_interval;
  for (;;) {
    co_await c.send(wait);
    const time_point until = std::min(op.deadline, later(now(), look));
    if (closes_on_missing_) look = std::min(2 * look, longest_poll);
    std::optional<std::uint8_t> reply;
    try {
      reply = co_await within(c.read_u8(), until - now());
    } catch (const timed_out&) {}
    if (!reply) {
      co_await c.send(encoded_cancel());
      reply = co_await answered(c.read_u8(), true);
      health_.note_answer();
      if (*reply == tcp_store_wait_cancelled) {
        if (now() >= op.deadline) co_return false;
        continue;
      }
      // The key was set while the cancellation was under way, which is still answered.
      co_await expect_cancelled(c);
    }
    if (*reply != tcp_store_ready)
      throw protocol_broken("the reply to a wait is not one of the protocol");
    co_return true;
  }
}

store_error tcp_store::client::error(const operation& op, store_error_kind kind,
                                     std::string reason) const {
  store_failure failure(kind, "tcp://" + endpoint_, op.request.operation, op.request.keys,
                        now() - op.start, std::move(reason));
  failure.may_have_happened = kind == store_error_kind::unreachable && op.was_sent &&
                              !is_repeatable(op.request.operation);
  return store_error(std::move(failure));
}

duration tcp_store::client::shortened(duration pause) noexcept {
  return pause - random_.at_most(pause / 2);
}

}  // namespace manyworlds::inline v0
