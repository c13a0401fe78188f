// File reader: ranges of a file are awaited, so that no disk holds up a reactor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <system_error>

#include "manyworlds/coro/task.hpp"

namespace manyworlds::inline v0 {

/// The fields of a file error.
struct file_failure {
  std::string path;
  /// What was to be read: where it begins, and how many bytes. Both are 0 if the file
  /// could not be opened.
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  /// What the kernel answered; empty if the file is shorter, or is none.
  std::error_code code;
  /// Why, for people: "the file ends at byte 96".
  std::string reason;
};

/// Thrown when a file cannot be opened or read. The text names the file, what was to be
/// read of it, and why. Copies share it.
class MANYWORLDS_EXPORT file_error : public std::exception {
 public:
  explicit file_error(file_failure fields);

  [[nodiscard]] const char* what() const noexcept override;
  [[nodiscard]] const file_failure& failure() const noexcept { return state_->fields; }

 private:
  struct state {
    file_failure fields;
    std::string text;
  };
  std::shared_ptr<const state> state_;
};

/// Reads ranges of one file. The kernel reads by io_uring; where that is refused, threads
/// of the engine do it. Nothing but `read_at` is awaited: opening blocks.
///
///     mw::file_reader file("model.safetensors");
///     std::vector<std::byte> head(8);
///     co_await file.read_at(0, head);
///     co_await mw::within(file.read_at(8, head), 5s);
///
/// Thread: any. Several reads may be under way, also of tasks on different reactors.
/// Lifetime: it is neither moved nor destroyed while one is.
class file_reader {
 public:
  /// Opens a file. Errors: file_error if that fails, or it is no regular file.
  explicit file_reader(std::string path);
  file_reader(file_reader&& other) noexcept;
  file_reader& operator=(file_reader&& other) noexcept;
  ~file_reader();

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Returns how many bytes it had when it was opened.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }

  /// Fills memory with the bytes of the file from `offset` on. At most 1 MiB is asked for
  /// at a time, one after the other; for more at once, await several.
  ///
  /// A cancellation ends it when the request that is under way has ended: the kernel
  /// writes to the memory until then. Lifetime: the memory must stay until the await
  /// ends.
  ///
  /// Errors: file_error if the file ends before, or its disk gives an error;
  /// std::logic_error where the task does not live on a reactor.
  [[nodiscard]] task<void> read_at(std::uint64_t offset, std::span<std::byte> into) const;

 private:
  [[noreturn]] void refuse(std::uint64_t offset, std::uint64_t bytes, int error) const;
  [[noreturn]] void refuse_beyond_end(std::uint64_t offset, std::uint64_t bytes) const;

  std::string path_;
  std::uint64_t size_ = 0;
  int descriptor_ = -1;
};

}  // namespace manyworlds::inline v0
