#include "link/secret.hpp"

#include <fmt/format.h>

#include <stdexcept>

#include "manyworlds/detail/config.hpp"

#if MANYWORLDS_HAS_SECRET
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#endif

#include <vector>

namespace manyworlds::inline v0::detail {

#if MANYWORLDS_HAS_SECRET

bool can_prove() noexcept { return true; }

secret_proof prove(const secret_text& secret, std::string_view role,
                   std::span<const std::byte> transcript) {
  secret_proof proof{};
  if (secret.empty()) return proof;
  // The role is part of the proof, so that one side's proof does not serve the other.
  const auto role_bytes = std::as_bytes(std::span(role));
  std::vector<std::byte> proven(role_bytes.begin(), role_bytes.end());
  proven.insert(proven.end(), transcript.begin(), transcript.end());
  unsigned length = 0;
  if (!HMAC(EVP_sha256(), secret.view().data(), static_cast<int>(secret.size()),
            reinterpret_cast<const unsigned char*>(proven.data()), proven.size(),
            reinterpret_cast<unsigned char*>(proof.data()), &length)) {
    throw std::runtime_error("libcrypto refused HMAC-SHA256");
  }
  return proof;
}

bool same_proof(const secret_proof& a, const secret_proof& b) noexcept {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

#else

bool can_prove() noexcept { return false; }

secret_proof prove(const secret_text& secret, std::string_view,
                   std::span<const std::byte>) {
  if (!secret.empty()) {
    throw std::runtime_error("this build has no libcrypto, so it cannot use a secret");
  }
  return {};
}

bool same_proof(const secret_proof& a, const secret_proof& b) noexcept { return a == b; }

#endif

std::string listening_error(const socket_address& address, bool has_secret,
                            bool insecure) {
  if (!address.is_valid()) return "the listening address is not an address";
  if (address.is_loopback() || has_secret || insecure) return {};
  return fmt::format(
      "listening at {} is open to the network: set a secret, or say insecure = true",
      address.text());
}

}  // namespace manyworlds::inline v0::detail
