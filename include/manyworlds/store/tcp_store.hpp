// TCP store: a client of a TCPStore server, ours or PyTorch's.
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "manyworlds/inline_text.hpp"
#include "manyworlds/store/store.hpp"

namespace manyworlds::inline v0 {

/// Options of a client of a TCPStore.
struct tcp_store_options {
  store_limits limits;
  /// The first pause between attempts to reach the store. It grows by half each time up
  /// to the longest; a random part is subtracted, so that many clients do not come at
  /// once.
  duration first_pause = std::chrono::milliseconds(10);
  duration longest_pause = std::chrono::seconds(1);
  /// Limit of one attempt to connect. A connection that is made waits longer for its
  /// greeting, since a slow server accepts the earlier ones first.
  duration connect_limit = std::chrono::seconds(3);
  /// How often a waiting client asks whether the store still answers; the answer has
  /// `answer_limit`.
  duration probe_interval = std::chrono::seconds(5);
  duration answer_limit = std::chrono::seconds(2);
  /// Operations in flight at a time that wait for an answer only; more take turns. Each
  /// wait for a key keeps a connection busy, so it has one more.
  std::size_t connections = 8;
  /// Connections that are kept open for the next operation.
  std::size_t idle_connections = 4;
  /// The secret that client and server prove to each other before anything else is said.
  /// A server that has none, or another, is refused. Empty: nothing is proven.
  secret_text secret = {};
  /// Seed of the random part of pauses. Not set: another one each time; set: a
  /// simulation's run can be repeated.
  std::optional<std::uint64_t> seed;
};

/// Speaks PyTorch's protocol, under PyTorch's names ("/" before every key), so that
/// both can share a store. Nothing connects before the first operation. Connections are
/// made on demand, and again after they broke, until the operation's limit. Only `add`
/// and `compare_set` are not repeated once they were sent: they fail with
/// `may_have_happened` (see `compare_set_unique`).
///
///     mw::tcp_store store(rt, "node1:29500");
///     mw::world w(rt, store, {.name = "left", .rank = 1, .size = 2});
///     co_await w;
///
/// A wait that ends at its limit takes up to 100 ms longer to ask which keys are missing,
/// or whether the store answers at all.
///
/// Lifetime: it lives on `home` (a service reactor), which must turn while operations
/// are awaited and outlive this. Thread: operations may be awaited on any. Errors: those
/// of `store`.
class tcp_store final : public store {
 public:
  /// Takes "host:port", "127.0.0.1:29500" or "[::1]:29500". Errors:
  /// std::invalid_argument naming any other endpoint, or if `home` is no reactor.
  tcp_store(executor& home, std::string endpoint, tcp_store_options options = {});
  /// Lives on the service reactor of a runtime, where it does not depend on user code.
  template <class Runtime>
  requires requires(Runtime& rt) {
    { rt.service() } -> std::same_as<executor&>;
  }
  tcp_store(Runtime& rt, std::string endpoint, tcp_store_options options = {})
      : tcp_store(rt.service(), std::move(endpoint), options) {}
  /// Lets operations in flight end as they would have. Worlds that are being formed ask
  /// it nothing after this.
  ~tcp_store() override;

  [[nodiscard]] std::string address() const override { return "tcp://" + endpoint_; }
  [[nodiscard]] std::string trouble() const override;
  task<store_reply> perform(store_request request) override;
  /// Counts this client among the workers of the store, and returns their number.
  /// PyTorch's clients do so once, if they were given a world size. Its process that
  /// hosts a store waits for that many before it goes on. Errors: as of `add`.
  task<std::int64_t> count_worker(duration limit = default_limit);

 private:
  class client;

  detail::reactor& home_;
  std::string endpoint_;
  tcp_store_options options_;
  std::shared_ptr<client> client_;
};

}  // namespace manyworlds::inline v0
