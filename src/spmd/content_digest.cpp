#include "spmd/content_digest.hpp"

#include <fmt/format.h>

#include <array>
#include <stdexcept>

#if MANYWORLDS_HAS_SECRET
#include <openssl/evp.h>
#endif

namespace manyworlds::inline v0::detail {

#if MANYWORLDS_HAS_SECRET

static void require_digest(int is_done) {
  if (is_done != 1) throw std::runtime_error("libcrypto refused SHA-256");
}

content_digest::content_digest()
    : state_(EVP_MD_CTX_new(),
             [](void* state) { EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(state)); }) {
  if (!state_) throw std::bad_alloc();
  require_digest(
      EVP_DigestInit_ex(static_cast<EVP_MD_CTX*>(state_.get()), EVP_sha256(), nullptr));
}

void content_digest::add(std::span<const std::byte> more) {
  require_digest(
      EVP_DigestUpdate(static_cast<EVP_MD_CTX*>(state_.get()), more.data(), more.size()));
}

std::string content_digest::text() {
  std::array<unsigned char, 32> digest{};
  require_digest(
      EVP_DigestFinal_ex(static_cast<EVP_MD_CTX*>(state_.get()), digest.data(), nullptr));
  std::string all;
  for (const unsigned char each : digest) all += fmt::format("{:02x}", each);
  return all;
}

#else

content_digest::content_digest() {
  throw std::runtime_error("this build has no libcrypto, so it cannot check an upload");
}

void content_digest::add(std::span<const std::byte>) {}

std::string content_digest::text() { return {}; }

#endif

std::string digest_of(std::span<const std::byte> content) {
  content_digest all;
  all.add(content);
  return all.text();
}

}  // namespace manyworlds::inline v0::detail
