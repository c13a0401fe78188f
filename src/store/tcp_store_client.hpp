// TCP store client: the part of a tcp_store that runs on its home reactor.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "manyworlds/coro/within.hpp"
#include "manyworlds/detail/seeded_random.hpp"
#include "manyworlds/store/tcp_store.hpp"
#include "store/store_health.hpp"
#include "store/tcp_store_connection.hpp"
#include "store/tcp_store_exchange.hpp"
#include "store/tcp_store_pool.hpp"
#include "store/turnstile.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

/// Performs operations, by attempts with pauses between them. Thread: its home's, except
/// for `trouble`.
///
/// A wait needs a connection for itself; while it has none, it asks periodically over a
/// shared one.
class tcp_store::client {
 public:
  client(reactor& home, std::string endpoint, const tcp_store_options& options);

  task<store_reply> run(store_request request,
                        tcp_store_names names = tcp_store_names::with_slash);
  /// See store::trouble. Thread: any.
  [[nodiscard]] std::string trouble() const { return health_.trouble(); }

 private:
  using connection_ptr = tcp_store_pool::connection;

  /// One operation over all its attempts.
  struct operation {
    operation(store_request request, time_point now,
              tcp_store_names names = tcp_store_names::with_slash);
    operation(const operation&) = delete;
    operation& operator=(const operation&) = delete;

    store_request request;
    tcp_store_question question;
    time_point start;
    time_point deadline;
    tcp_store_pool::use use;
    bool was_sent = false;
  };

  task<store_reply> attempt(operation& op);
  task<connection_ptr> take_proven(operation& op);
  task<store_reply> ask(operation& op);
  task<store_reply> reply_of(operation& op, tcp_store_connection& c);
  task<store_reply> get(operation& op);
  task<store_reply> wait(operation& op);
  task<store_reply> meet(operation& op);
  task<void> time_out(operation& op, connection_ptr c);

  /// Bounds an answer over a connection that was idle: it may be dead without a notice,
  /// and then another is made.
  template <class T>
  task<T> answered(task<T> reading, bool is_suspect);

  /// Waits until the keys are set; false at the deadline. It uses `c` if that is open
  /// and may be kept, otherwise a new connection. Afterwards `c` is null if it used
  /// neither.
  task<bool> await_keys(operation& op, connection_ptr& c);
  task<bool> keep_and_wait(operation& op, tcp_store_connection& c);
  task<bool> ask_now_and_then(operation& op);
  task<bool> wait_for_keys(operation& op, tcp_store_connection& c);
  static task<void> expect_cancelled(tcp_store_connection& c);

  [[nodiscard]] store_error error(const operation& op, store_error_kind kind,
                                  std::string reason) const;
  [[nodiscard]] time_point now() const noexcept { return home_.now(); }
  duration shortened(duration pause) noexcept;

  reactor& home_;
  std::string endpoint_;
  tcp_store_options options_;
  turnstile places_;
  /// This server closes the connection at a get of a key that is not set.
  bool closes_on_missing_ = false;
  seeded_random random_;
  store_health health_;
  tcp_store_pool pool_;
};

template <class T>
task<T> tcp_store::client::answered(task<T> reading, bool is_suspect) {
  try {
    co_return co_await within(std::move(reading),
                              is_suspect ? options_.answer_limit : duration::max());
  } catch (const timed_out&) {
    throw connection_lost("no answer");
  }
}

}  // namespace manyworlds::inline v0
