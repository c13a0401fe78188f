// Endpoint acceptor: takes connections in for an endpoint, and decides which may stay.
#pragma once

#include <memory>
#include <optional>

#include "io/stream.hpp"
#include "link/endpoint.hpp"
#include "link/hello.hpp"
#include "manyworlds/coro/event.hpp"

namespace manyworlds::inline v0::detail {

/// Listens from its construction. A part of an endpoint. Thread: the service reactor.
class endpoint::acceptor {
 public:
  /// Errors: those of `listener`.
  explicit acceptor(endpoint& owner)
      : owner_(owner), listener_(owner.service_, owner.options_.listen) {}
  acceptor(const acceptor&) = delete;
  acceptor& operator=(const acceptor&) = delete;

  [[nodiscard]] socket_address address() const { return listener_.address(); }
  /// Accepts and greets until cancelled.
  [[nodiscard]] task<void> run();

 private:
  class acceptance;
  class greeting;

  /// Waits while too many connections are in their first words.
  [[nodiscard]] task<void> until_one_more_may_greet();
  [[nodiscard]] task<void> greet_one(stream s, greeting counted);
  [[nodiscard]] task<std::optional<hello>> answer_in_time(stream& s,
                                                          acceptance& welcomed);
  [[nodiscard]] task<void> answer_query(stream s);
  [[nodiscard]] hello_status decide(const hello& h);

  endpoint& owner_;
  listener listener_;
  std::size_t greetings_ = 0;
  event greeting_ended_;
  /// Set for a moment to close all connections that are in their first words.
  event hang_up_;
};

}  // namespace manyworlds::inline v0::detail
