#include "store/tcp_store_client.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "io/system_environment.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

namespace {

// Time to ask, after a wait has ended at its limit, which keys are missing.
constexpr duration last_question = std::chrono::milliseconds(100);

std::uint64_t fresh_seed() {
  std::uint64_t seed = 0;
  system_environment().fill_random(std::as_writable_bytes(std::span(&seed, 1)));
  return seed;
}

tcp_store_opcode opcode_of(store_operation operation) noexcept {
  switch (operation) {
    case store_operation::set:
      return tcp_store_opcode::set;
    case store_operation::add:
      return tcp_store_opcode::add;
    case store_operation::compare_set:
      return tcp_store_opcode::compare_set;
    case store_operation::erase:
      return tcp_store_opcode::delete_key;
    case store_operation::check:
      return tcp_store_opcode::check;
    case store_operation::num_keys:
      return tcp_store_opcode::num_keys;
    case store_operation::wait:
      return tcp_store_opcode::wait;
    case store_operation::get:
    case store_operation::try_get:
      break;
  }
  return tcp_store_opcode::get;
}

/// A wait without a connection asks whether its keys are set, first after this time, by
/// which a healthy server has accepted it.
constexpr duration first_question = std::chrono::milliseconds(200);
constexpr duration longest_between_questions = std::chrono::seconds(1);
/// It also holds at the operation's end.
constexpr duration shortest_between_questions = std::chrono::milliseconds(10);

std::string encoded_ping(std::uint32_t nonce) {
  tcp_store_message ping(tcp_store_opcode::ping);
  ping.number = nonce;
  std::string bytes;
  encode(ping, bytes);
  return bytes;
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
      random_(options.seed ? *options.seed : fresh_seed()),
      health_(home),
      pool_(home, endpoint_, options_, health_, random_) {}

task<store_reply> tcp_store::client::run(store_request request) {
  MW_ASSERT(home_.is_current(), "a client runs on its home");
  operation op(std::move(request), now());
  duration pause = options_.first_pause;
  std::string reason;
  const store_health::question asked(health_);
  for (;;) {
    bool is_over = false;
    duration left = remaining(op.deadline, now());
    if (op.waits_for_keys() && left < duration::max() - last_question)
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
      throw error(op, store_error_kind::protocol, broken.what());
    }
    if (is_over || now() >= op.deadline || (op.was_sent && !op.is_repeatable())) {
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
  if (op.request.operation == store_operation::get) return get(op);
  if (op.request.operation == store_operation::wait) return wait(op);
  return ask(op);
}

/// Performs an operation that waits only for its answer.
task<store_reply> tcp_store::client::ask(operation& op) {
  const turnstile::place place = co_await places_.enter();
  connection_ptr c = co_await pool_.take(op.use);
  if (op.use.was_reused && !op.is_repeatable()) {
    // Finds out whether the connection died while idle before the request leaves.
    const std::uint32_t nonce = pool_.nonce();
    const std::string ping = encoded_ping(nonce);
    co_await c->send(ping);
    co_await answered(c->expect_ping(nonce), true);
  }
  const bool is_suspect = op.use.was_reused && op.is_repeatable();
  store_reply reply = co_await answered(exchange(op, *c), is_suspect);
  pool_.give_back(std::move(c));
  co_return reply;
}

task<store_reply> tcp_store::client::exchange(operation& op, tcp_store_connection& c) {
  if (op.request.operation == store_operation::try_get) {
    co_return store_reply(co_await try_get(op, c));
  }
  tcp_store_message message(opcode_of(op.request.operation), op.wire_keys);
  message.number = op.request.delta;
  if (op.request.operation == store_operation::compare_set) {
    message.values.push_back(op.request.expected);
  }
  message.values.push_back(op.request.value);
  std::string bytes;
  encode(message, bytes);
  std::uint32_t nonce = 0;
  if (op.request.operation == store_operation::set) {
    // A set has no reply; that of the ping says that it has been carried out.
    nonce = pool_.nonce();
    bytes += encoded_ping(nonce);
  }
  op.was_sent = true;
  co_await c.send(bytes);
  switch (op.request.operation) {
    case store_operation::set:
      co_await c.expect_ping(nonce);
      co_return store_reply();
    case store_operation::compare_set:
      co_return store_reply(co_await c.read_text());
    case store_operation::check:
      co_return store_reply(std::int64_t{co_await c.read_u8() == tcp_store_ready});
    default:
      co_return store_reply(co_await c.read_i64());
  }
}

/// Each question takes its turn like any operation, so that a thousand gets of keys that
/// are set need no more connections than others. Waiting takes no turn: it could keep
/// out the very operation that sets the key.
task<store_reply> tcp_store::client::get(operation& op) {
  connection_ptr c;
  for (;;) {
    std::optional<std::string> value;
    if (c) {
      value = co_await try_get(op, *c);
    } else {
      const turnstile::place place = co_await places_.enter();
      c = co_await pool_.take(op.use);
      value = co_await answered(try_get(op, *c), op.use.was_reused);
    }
    health_.note_answer();
    if (value || now() >= op.deadline) {
      pool_.give_back(std::move(c));
      if (value) co_return store_reply(std::move(value));
      throw error(op, store_error_kind::timed_out, "not set by anyone");
    }
    co_await await_keys(op, c);
  }
}

task<store_reply> tcp_store::client::wait(operation& op) {
  connection_ptr c = pool_.take_idle(op.use);
  if (!co_await await_keys(op, c)) {
    if (!c) c = co_await pool_.take(op.use);
    std::vector<std::string> missing = co_await missing_keys(op, *c);
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
      missing = co_await answered(missing_keys(aside, *c), true);
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

/// Returns the value, or nothing if the key is not set, in one round trip. PyTorch's
/// servers answer a GET of a missing key with an empty value, or close the connection,
/// so the CHECK before it decides. A server that closes is asked in two trips
/// afterwards, since a new connection may be slow to come.
task<std::optional<std::string>> tcp_store::client::try_get(operation& op,
                                                            tcp_store_connection& c) {
  std::string check;
  encode(tcp_store_message(tcp_store_opcode::check, op.wire_keys), check);
  std::string get;
  encode(tcp_store_message(tcp_store_opcode::get, op.wire_keys), get);
  const bool asks_twice = closes_on_missing_;
  const std::string first = asks_twice ? check : check + get;
  co_await c.send(first);
  const bool is_set = co_await c.read_u8() == tcp_store_ready;
  if (asks_twice) {
    if (!is_set) co_return std::nullopt;
    co_await c.send(get);
  }
  std::optional<std::string> value;
  try {
    value = co_await c.read_text();
  } catch (const connection_lost&) {
    if (is_set) throw;
    closes_on_missing_ = true;
    c.close();
  }
  if (!is_set) value.reset();
  co_return value;
}

/// Returns false at the deadline. It asks periodically whether the store still answers:
/// it cancels the wait, which needs a reply, and waits again.
task<bool> tcp_store::client::wait_for_keys(operation& op, tcp_store_connection& c) {
  std::string wait;
  encode(tcp_store_message(tcp_store_opcode::wait, op.wire_keys), wait);
  std::string cancel;
  encode(tcp_store_message(tcp_store_opcode::cancel_wait), cancel);
  for (;;) {
    co_await c.send(wait);
    const time_point until = std::min(op.deadline, later(now(), options_.probe_interval));
    std::optional<std::uint8_t> reply;
    try {
      reply = co_await within(c.read_u8(), until - now());
    } catch (const timed_out&) {}
    if (!reply) {
      co_await c.send(cancel);
      reply = co_await answered(c.read_u8(), true);
      health_.note_answer();
      if (*reply == tcp_store_wait_cancelled) {
        if (now() >= op.deadline) co_return false;
        continue;
      }
      // The key was set while the cancellation was under way, which is still answered.
      if (co_await c.read_u8() != tcp_store_wait_cancelled) {
        throw protocol_broken("the reply to a cancelled wait is not one of the protocol");
      }
    }
    if (*reply != tcp_store_ready)
      throw protocol_broken("the reply to a wait is not one of the protocol");
    co_return true;
  }
}

task<std::vector<std::string>> tcp_store::client::missing_keys(operation& op,
                                                               tcp_store_connection& c) {
  MW_ASSERT(op.wire_keys.size() == op.request.keys.size(), "a key has one wire name");
  std::string bytes;
  for (const std::string& key : op.wire_keys) {
    tcp_store_message check(tcp_store_opcode::check);
    check.keys.push_back(key);
    encode(check, bytes);
  }
  co_await c.send(bytes);
  std::vector<std::string> missing;
  for (const std::string& key : op.request.keys) {
    if (co_await c.read_u8() != tcp_store_ready) missing.push_back(key);
  }
  co_return missing;
}

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
