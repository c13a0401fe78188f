// The shared secret of a job, and proofs of knowing it.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "manyworlds/inline_text.hpp"
#include "manyworlds/io/socket_address.hpp"

namespace manyworlds::inline v0::detail {

using secret_proof = std::array<std::byte, 32>;

/// Returns the HMAC-SHA256 (RFC 2104) of `role` and the transcript under the secret, or
/// zeros without a secret. Errors: std::runtime_error if a secret is set and this build
/// has no libcrypto.
[[nodiscard]] secret_proof prove(const secret_text& secret, std::string_view role,
                                 std::span<const std::byte> transcript);
/// Compares two proofs in constant time.
[[nodiscard]] bool same_proof(const secret_proof& a, const secret_proof& b) noexcept;
/// Says whether this build can use a secret.
[[nodiscard]] bool can_prove() noexcept;

/// Says what is wrong with listening at `address` without a secret; empty if nothing
/// is.
[[nodiscard]] std::string listening_error(const socket_address& address, bool has_secret,
                                          bool insecure);

}  // namespace manyworlds::inline v0::detail
