// Store greeting: client and server of a store prove that they know one secret, ahead of
// the store's own protocol.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "io/stream.hpp"
#include "link/secret.hpp"
#include "manyworlds/coro/task.hpp"

namespace manyworlds::inline v0::detail {

/// The first byte of a greeting, which begins no TCPStore request: one port tells both.
inline constexpr std::byte store_greeting_begin{'M'};

/// How a greeting ended.
enum class store_greeting_end : unsigned char {
  proven,        ///< both know the secret
  no_secret,     ///< the server has none
  wrong_secret,  ///< the other side has another one
  broken,        ///< the connection ended, or what came is no greeting
};

[[nodiscard]] std::string_view text_of(store_greeting_end end) noexcept;

/// Greets a server. Each side sends 32 random bytes and the HMAC-SHA256 of all that was
/// said before, under the secret and its own role: neither a recorded greeting nor one
/// that is sent back to its origin proves anything. The server proves first, so that a
/// client sends nothing to a server without the secret. It proves who connects and
/// encrypts nothing.
///
///     client: "MWSTORE", version (1 byte), nonce (32)
///     server: 0, nonce (32), proof (32); or 1 if it has no secret
///     client: proof (32)
///     server: 0; or 2 if the proof is wrong
///
/// Lifetime: what it is given outlives it.
[[nodiscard]] task<store_greeting_end> greet_store(stream& server,
                                                   const secret_text& secret);

/// Answers a greeting. `begun` is what of it was read already, at most the whole first
/// message; it must begin with `store_greeting_begin`.
[[nodiscard]] task<store_greeting_end> answer_greeting(stream& client,
                                                       const secret_text& secret,
                                                       std::span<const std::byte> begun);

/// Bytes of the first message: a client sends no more before it is answered.
inline constexpr std::size_t store_greeting_bytes = 8 + 32;

}  // namespace manyworlds::inline v0::detail
