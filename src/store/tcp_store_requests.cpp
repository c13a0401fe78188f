// The requests that each operation of a TCP store sends.

#include <algorithm>
#include <utility>

#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "store/tcp_store_client.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

namespace {

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

/// A dial that takes this long is slow to be accepted.
constexpr duration slow_dial = std::chrono::milliseconds(200);
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

}  // namespace

/// Performs an operation that waits only for its answer.
task<store_reply> tcp_store::client::ask(operation& op) {
  const turnstile::place place = co_await places_.enter();
  connection_ptr c = co_await take(op);
  if (op.was_reused && !op.is_repeatable()) {
    // Finds out whether the connection died while idle before the request leaves.
    const std::uint32_t nonce = this->nonce();
    const std::string ping = encoded_ping(nonce);
    co_await c->send(ping);
    co_await answered(c->expect_ping(nonce), true);
  }
  const bool is_suspect = op.was_reused && op.is_repeatable();
  store_reply reply = co_await answered(exchange(op, *c), is_suspect);
  give_back(std::move(c));
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
    nonce = this->nonce();
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
      c = co_await take(op);
      value = co_await answered(try_get(op, *c), op.was_reused);
    }
    note_answer();
    if (value || now() >= op.deadline) {
      give_back(std::move(c));
      if (value) co_return store_reply(std::move(value));
      throw error(op, store_error_kind::timed_out, "not set by anyone");
    }
    co_await await_keys(op, c);
  }
}

task<store_reply> tcp_store::client::wait(operation& op) {
  connection_ptr c = take_idle(op);
  if (!co_await await_keys(op, c)) {
    if (!c) c = co_await take(op);
    std::vector<std::string> missing = co_await missing_keys(op, *c);
    if (!missing.empty()) {
      give_back(std::move(c));
      op.request.keys = std::move(missing);
      throw error(op, store_error_kind::timed_out, "not set by anyone");
    }
  }
  give_back(std::move(c));
  co_return store_reply();
}

bool tcp_store::client::may_keep_one() const noexcept {
  // Where none is kept idle, none can be left to others: it would be closed and dialled
  // again.
  const bool may_leave_one = options_.idle_connections > 0;
  return last_dial_took_ < slow_dial || needy_ == 0 || open_ - kept_ > 1 ||
         !may_leave_one;
}

task<bool> tcp_store::client::await_keys(operation& op, connection_ptr& c) {
  if (c && c->is_open() && may_keep_one()) co_return co_await keep_and_wait(op, *c);
  give_back(std::move(c));
  c = nullptr;
  auto first = co_await when_any(own_connection(op), ask_now_and_then(op));
  if (std::get<0>(first)) c = std::move(*std::get<0>(first));
  if (std::get<1>(first)) co_return *std::get<1>(first);
  co_return co_await keep_and_wait(op, *c);
}

task<bool> tcp_store::client::keep_and_wait(operation& op, tcp_store_connection& c) {
  const counted kept(kept_);
  MW_ASSERT(kept_ <= open_, "a wait keeps a greeted connection");
  const parked_question no_answer_is_due(*this);
  co_return co_await wait_for_keys(op, c);
}

task<tcp_store::client::connection_ptr> tcp_store::client::own_connection(operation& op) {
  for (;;) {
    connection_ptr c;
    {
      const counted need(needy_);
      const turnstile::place place = co_await dials_.enter();
      c = co_await connect(op);
    }
    if (may_keep_one()) co_return c;
    give_back(std::move(c));
  }
}

/// Asks over any idle connection. Where none ever is, the operation's limit ends it.
task<bool> tcp_store::client::ask_now_and_then(operation& op) {
  duration pause = first_question;
  for (;;) {
    co_await sleep_until(std::max(later(now(), shortest_between_questions),
                                  std::min(op.deadline, later(now(), pause))));
    pause = std::min(2 * pause, longest_between_questions);
    operation aside(op.request, now());
    connection_ptr c = take_idle(aside);
    if (!c) continue;
    std::optional<std::vector<std::string>> missing;
    try {
      missing = co_await answered(missing_keys(aside, *c), true);
    } catch (const connection_lost&) {
      // Another connection serves as well.
    }
    if (!missing) continue;
    note_answer();
    give_back(std::move(c));
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
      note_answer();
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

}  // namespace manyworlds::inline v0
