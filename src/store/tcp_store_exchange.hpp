// TCPStore exchange: what one operation asks over one connection, and how the replies
// read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/store/store.hpp"
#include "store/tcp_store_connection.hpp"

namespace manyworlds::inline v0::detail {

/// How keys are called on the wire: with "/" before each, as PyTorch's client calls its
/// user's keys, or as they are, which its own key of a count of workers is.
enum class tcp_store_names : std::uint8_t { with_slash, as_they_are };

/// A request and the names that its keys have on the wire. Lifetime: the request outlives
/// it.
struct tcp_store_question {
  explicit tcp_store_question(const store_request& r,
                              tcp_store_names names = tcp_store_names::with_slash);

  const store_request& request;
  std::vector<std::string> wire_keys;
};

/// Performs an operation that waits for its answer only, and is none of those below.
/// `nonce` is for the ping that follows a request without a reply of its own.
[[nodiscard]] task<store_reply> exchange(const tcp_store_question& q,
                                         tcp_store_connection& c, std::uint32_t nonce);

/// Looks for what `get`, `try_get`, `multi_get`, `pop` and `try_pop` want, in one round
/// trip. Returns nothing if a key is not set or the queue is empty. PyTorch's servers
/// answer for a key that is not set with an empty value, or close the connection, so the
/// CHECK before it decides. `closes_on_missing` remembers a server that closes: it is
/// asked in two trips afterwards, since a new connection may be slow to come.
[[nodiscard]] task<std::optional<store_reply>> fetch(const tcp_store_question& q,
                                                     tcp_store_connection& c,
                                                     bool& closes_on_missing);

/// Returns those of the keys that are not set.
[[nodiscard]] task<std::vector<std::string>> missing_keys(const tcp_store_question& q,
                                                          tcp_store_connection& c);

}  // namespace manyworlds::inline v0::detail
