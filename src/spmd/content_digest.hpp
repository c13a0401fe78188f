// Content digest: the SHA-256 of what is uploaded, by which both sides know it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0::detail {

/// Adds up bytes. Errors, of all: std::runtime_error in a build without libcrypto, and
/// where that refuses.
class content_digest {
 public:
  content_digest();

  void add(std::span<const std::byte> more);
  /// Returns the digest, as 64 digits. Nothing is added later.
  [[nodiscard]] std::string text();

 private:
  /// libcrypto's state.
  std::shared_ptr<void> state_;
};

[[nodiscard]] std::string digest_of(std::span<const std::byte> content);

}  // namespace manyworlds::inline v0::detail
