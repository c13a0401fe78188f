// Content file: bytes in memory that the dynamic loader takes for a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "io/descriptor.hpp"

namespace manyworlds::inline v0::detail {

/// What was uploaded, as a file without a name: sealed memory (memfd), which none can
/// change and every process of this user can open; or, where memory is refused or must
/// not be executed, an unlinked file in `$TMPDIR`.
class content_file {
 public:
  content_file() noexcept = default;

  /// Copies content to sealed memory. Returns none where that is refused.
  [[nodiscard]] static content_file in_memory(std::span<const std::byte> content);
  /// Copies it to an unlinked file. Errors: std::system_error.
  [[nodiscard]] static content_file on_disk(std::span<const std::byte> content);
  /// Opens the sealed memory of another process, by its descriptor there. Returns none
  /// if that is not permitted, or it is another content.
  [[nodiscard]] static content_file of_process(std::int64_t pid, int descriptor,
                                               std::uint64_t bytes,
                                               const std::string& digest);

  explicit operator bool() const noexcept { return static_cast<bool>(file_); }
  [[nodiscard]] int descriptor() const noexcept { return file_.get(); }
  /// Returns a path by which this process opens it.
  [[nodiscard]] std::string path() const;
  /// Returns one that can be mapped to be executed: this, or a copy on disk. Errors:
  /// std::system_error.
  [[nodiscard]] content_file executable() &&;
  /// Lets the descriptor stay open for as long as the process lives.
  void keep_open() noexcept { static_cast<void>(file_.release()); }

 private:
  content_file(unique_descriptor file, std::uint64_t bytes) noexcept
      : file_(std::move(file)), bytes_(bytes) {}

  unique_descriptor file_;
  std::uint64_t bytes_ = 0;
};

}  // namespace manyworlds::inline v0::detail
