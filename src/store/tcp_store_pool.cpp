#include "store/tcp_store_pool.hpp"

#include <algorithm>
#include <system_error>
#include <utility>

#include "io/resolve.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/coro/within.hpp"
#include "store/store_greeting.hpp"

namespace manyworlds::inline v0::detail {

namespace {

/// The most dials of one client at a time.
constexpr std::size_t most_dials = 4;
/// A dial that takes this long is slow to be accepted.
constexpr duration slow_dial = std::chrono::milliseconds(200);
/// Limit of the answer to a greeting once a connection is made. The server first
/// accepts all connections that were dialled before. The end of a server is noticed
/// sooner, unless its machine has crashed.
constexpr duration greeting_limit = std::chrono::minutes(1);

}  // namespace

tcp_store_pool::tcp_store_pool(reactor& home, const std::string& endpoint,
                               const tcp_store_options& options, store_health& health,
                               seeded_random& random) noexcept
    : home_(home),
      endpoint_(endpoint),
      options_(options),
      health_(health),
      random_(random),
      dials_(most_dials) {}

tcp_store_pool::connection tcp_store_pool::take_idle(use& of) noexcept {
  of.was_reused = false;
  while (!idle_.empty()) {
    connection c = std::move(idle_.back());
    MW_ASSERT(c, "an idle connection is one");
    idle_.pop_back();
    // The server is gone, or has ended it.
    if (c->has_ended()) continue;
    of.was_reused = true;
    return c;
  }
  return nullptr;
}

task<tcp_store_pool::connection> tcp_store_pool::take(use& of) {
  for (;;) {
    connection c = take_idle(of);
    if (c) co_return c;
    const counted need(needy_);
    auto first = co_await when_any(turn_to_dial(), until_one_is_idle());
    // If both came, the turn is given back here.
    if (std::get<0>(first) && idle_.empty()) co_return co_await connect(of);
  }
}

task<tcp_store_pool::connection> tcp_store_pool::take_own(use& of) {
  for (;;) {
    connection c;
    {
      const counted need(needy_);
      const turnstile::place place = co_await dials_.enter();
      c = co_await connect(of);
    }
    if (may_keep_one()) co_return c;
    give_back(std::move(c));
  }
}

void tcp_store_pool::give_back(connection c) {
  if (!c || !c->is_open() || idle_.size() >= options_.idle_connections) return;
  c->note_use(home_.now());
  idle_.push_back(std::move(c));
  given_back_.set();
}

bool tcp_store_pool::may_keep_one() const noexcept {
  // Where none is kept idle, none can be left to others: it would be closed and dialled
  // again.
  const bool may_leave_one = options_.idle_connections > 0;
  return last_dial_took_ < slow_dial || needy_ == 0 || open_ - kept_ > 1 ||
         !may_leave_one;
}

task<turnstile::place> tcp_store_pool::turn_to_dial() {
  co_return co_await dials_.enter();
}

task<void> tcp_store_pool::until_one_is_idle() {
  while (idle_.empty()) {
    given_back_.reset();
    co_await given_back_.wait();
  }
}

task<tcp_store_pool::connection> tcp_store_pool::connect(use& of) {
  of.is_connecting = true;
  const time_point begun = home_.now();
  connection c = co_await dial();
  of.is_connecting = false;
  last_dial_took_ = home_.now() - begun;
  health_.note_answer();
  co_return c;
}

task<stream> tcp_store_pool::reach() {
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

task<tcp_store_pool::connection> tcp_store_pool::dial() {
  stream s;
  try {
    s = co_await within(reach(), options_.connect_limit);
  } catch (const timed_out&) {
    throw connection_lost("no answer while connecting");
  }
  const duration limit = std::max(greeting_limit, options_.connect_limit);
  try {
    if (!options_.secret.empty()) co_await within(prove_secret(s), limit);
    auto c = std::make_unique<tcp_store_connection>(std::move(s), options_.limits, open_);
    co_await within(c->greet(nonce()), limit);
    co_return c;
  } catch (const timed_out&) {
    throw connection_lost("it accepts connections, but does not answer the greeting");
  } catch (const connection_lost& lost) {
    const bool may_want_secret = options_.secret.empty();
    throw connection_lost(
        std::string(lost.what()) +
        (may_want_secret ? " at the greeting; it may demand a secret, or be a store of "
                           "PyTorch before 2.2"
                         : ""));
  }
}

task<void> tcp_store_pool::prove_secret(stream& s) {
  const store_greeting_end end = co_await greet_store(s, options_.secret);
  if (end == store_greeting_end::proven) co_return;
  if (end == store_greeting_end::broken) {
    throw connection_lost(
        "the greeting that proves the secret was broken off, as by a "
        "store that knows none");
  }
  throw secret_refused(std::string(text_of(end)));
}

}  // namespace manyworlds::inline v0::detail
