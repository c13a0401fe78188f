#include "store/tcp_store_client.hpp"

#include <algorithm>
#include <span>
#include <system_error>
#include <utility>

#include "io/resolve.hpp"
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

/// A healthy store has answered within this time.
constexpr duration prompt_answer = std::chrono::milliseconds(200);
constexpr const char* no_answer = "no answer yet";

/// The most dials of one client at a time.
constexpr std::size_t most_dials = 4;
/// Limit of the answer to a greeting once a connection is made. The server first
/// accepts all connections that were dialled before. The end of a server is noticed
/// sooner, unless its machine has crashed.
constexpr duration greeting_limit = std::chrono::minutes(1);

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
      dials_(most_dials),
      random_(options.seed ? *options.seed : fresh_seed()) {}

task<store_reply> tcp_store::client::run(store_request request) {
  MW_ASSERT(home_.is_current(), "a client runs on its home");
  operation op(std::move(request), now());
  duration pause = options_.first_pause;
  std::string reason;
  const question asked(*this);
  for (;;) {
    bool is_over = false;
    duration left = remaining(op.deadline, now());
    if (op.waits_for_keys() && left < duration::max() - last_question)
      left += last_question;
    try {
      store_reply reply = co_await within(attempt(op), left);
      note_answer();
      co_return reply;
    } catch (const timed_out&) {
      is_over = true;
    } catch (const connection_lost& lost) {
      reason = lost.what();
      note_failure(reason);
    } catch (const protocol_broken& broken) {
      throw error(op, store_error_kind::protocol, broken.what());
    }
    if (is_over || now() >= op.deadline || (op.was_sent && !op.is_repeatable())) {
      if (reason.empty())
        reason = op.is_connecting ? "no answer while connecting" : "no answer";
      throw error(op, store_error_kind::unreachable, std::move(reason));
    }
    if (op.was_reused) {
      // The store went away and perhaps came back since, so the other idle connections
      // are no better.
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
  op.is_connecting = false;
  if (op.request.operation == store_operation::get) return get(op);
  if (op.request.operation == store_operation::wait) return wait(op);
  return ask(op);
}

// --------------------------------------------------------------------------------------

tcp_store::client::connection_ptr tcp_store::client::take_idle(operation& op) noexcept {
  op.was_reused = !idle_.empty();
  if (!op.was_reused) return nullptr;
  connection_ptr c = std::move(idle_.back());
  MW_ASSERT(c, "an idle connection is one");

  idle_.pop_back();
  return c;
}

task<tcp_store::client::connection_ptr> tcp_store::client::take(operation& op) {
  for (;;) {
    connection_ptr c = take_idle(op);
    if (c) co_return c;
    const counted need(needy_);
    auto first = co_await when_any(turn_to_dial(), until_one_is_idle());
    // If both came, the turn is given back here.
    if (std::get<0>(first) && idle_.empty()) co_return co_await connect(op);
  }
}

task<turnstile::place> tcp_store::client::turn_to_dial() {
  co_return co_await dials_.enter();
}

task<void> tcp_store::client::until_one_is_idle() {
  while (idle_.empty()) {
    given_back_.reset();
    co_await given_back_.wait();
  }
}

void tcp_store::client::give_back(connection_ptr c) {
  if (!c || !c->is_open() || idle_.size() >= options_.idle_connections) return;
  idle_.push_back(std::move(c));
  given_back_.set();
}

task<tcp_store::client::connection_ptr> tcp_store::client::connect(operation& op) {
  op.is_connecting = true;
  const time_point begun = now();
  connection_ptr c = co_await dial();
  op.is_connecting = false;
  last_dial_took_ = now() - begun;
  note_answer();
  co_return c;
}

task<stream> tcp_store::client::reach() {
  const resolution found = co_await resolve(endpoint_);
  if (!found.ok()) throw connection_lost(found.failure());
  int failure = 0;
  for (const socket_address& address : found.addresses()) {
    stream s;
    const io_result connected = co_await stream::connect(home_, address, s);
    if (connected.ok()) co_return s;
    failure = connected.error();
  }
  throw connection_lost("connecting: " + std::generic_category().message(failure));
}

task<tcp_store::client::connection_ptr> tcp_store::client::dial() {
  stream s;
  try {
    s = co_await within(reach(), options_.connect_limit);
  } catch (const timed_out&) {
    throw connection_lost("no answer while connecting");
  }
  auto c = std::make_unique<tcp_store_connection>(std::move(s), options_.limits, open_);
  try {
    co_await within(c->greet(nonce()), std::max(greeting_limit, options_.connect_limit));
  } catch (const timed_out&) {
    throw connection_lost("it accepts no connection: no answer to a greeting");
  }
  co_return c;
}

// --------------------------------------------------------------------------------------

std::string tcp_store::client::trouble() const {
  const std::lock_guard lock(trouble_mutex_);
  if (!trouble_.empty() || !no_answer_since_) return trouble_;
  const bool is_late = now() - *no_answer_since_ > prompt_answer;
  return is_late ? no_answer : "";
}

void tcp_store::client::begin_question() {
  const std::lock_guard lock(trouble_mutex_);
  if (questions_++ == 0) no_answer_since_ = now();
}

void tcp_store::client::end_question() {
  const std::lock_guard lock(trouble_mutex_);
  MW_ASSERT(questions_ > 0, "a question ends once");
  if (--questions_ > 0 || !no_answer_since_) return;
  // The last question was given up. If its answer was late already, that is kept.
  if (trouble_.empty() && now() - *no_answer_since_ > prompt_answer) trouble_ = no_answer;
  no_answer_since_.reset();
}

void tcp_store::client::note_failure(std::string reason) {
  const std::lock_guard lock(trouble_mutex_);
  trouble_ = std::move(reason);
}

void tcp_store::client::note_answer() {
  const std::lock_guard lock(trouble_mutex_);
  trouble_.clear();
  no_answer_since_.reset();
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
