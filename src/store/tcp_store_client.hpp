// TCP store client: what a tcp_store does on its home reactor.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "manyworlds/coro/within.hpp"
#include "manyworlds/io/simulated_random.hpp"
#include "manyworlds/store/tcp_store.hpp"
#include "tcp_store_connection.hpp"
#include "turnstile.hpp"

namespace manyworlds::inline v0 {

/// Connections, attempts and pauses. On its home's thread only.
class tcp_store::client {
 public:
  client(reactor& home, std::string endpoint, const tcp_store_options& options);

  task<store_reply> run(store_request request);

 private:
  using connection_ptr = std::unique_ptr<tcp_store_connection>;

  /// One operation over all its attempts.
  struct operation {
    operation(store_request request, time_point now);

    [[nodiscard]] bool waits_for_keys() const noexcept;
    [[nodiscard]] bool is_repeatable() const noexcept;

    store_request request;
    std::vector<std::string> wire_keys;
    time_point start;
    time_point deadline;
    /// Of the current attempt: over a connection that had been idle, and whether the
    /// request itself may have left.
    bool was_reused = false;
    bool was_sent = false;
  };

  task<store_reply> attempt(operation& op);
  task<store_reply> ask(operation& op);
  task<store_reply> exchange(operation& op, tcp_store_connection& c);
  task<store_reply> get(operation& op);
  task<store_reply> wait(operation& op);

  /// What was idle may be dead without a notice: it must answer soon, or another is made.
  template <class T>
  task<T> answered(task<T> reading, bool is_suspect);

  task<connection_ptr> take(operation& op);
  task<connection_ptr> connect();
  task<connection_ptr> dial();
  void give_back(connection_ptr c);

  task<std::optional<std::string>> look(operation& op, tcp_store_connection& c);
  task<bool> wait_for_keys(operation& op, tcp_store_connection& c);
  task<std::vector<std::string>> missing_keys(operation& op, tcp_store_connection& c);

  [[nodiscard]] store_error error(const operation& op, store_error_kind kind,
                                  std::string reason) const;
  [[nodiscard]] time_point now() const noexcept { return home_.now(); }
  duration shortened(duration pause) noexcept;
  /// Tells a reply to one ping from those to others.
  std::uint32_t nonce() noexcept { return static_cast<std::uint32_t>(random_.next()); }

  reactor& home_;
  std::string endpoint_;
  tcp_store_options options_;
  turnstile places_;
  std::vector<connection_ptr> idle_;
  simulated_random random_;
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
