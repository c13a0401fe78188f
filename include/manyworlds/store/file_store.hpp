// File store: a store in a folder, for processes that share a file system.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "manyworlds/store/store.hpp"

namespace manyworlds::inline v0 {

/// Options of a store in a folder.
struct file_store_options {
  store_limits limits = {};
  /// How often a wait looks for its keys where the file system tells of no change: the
  /// first pause, which doubles up to the longest. On a local disk the kernel tells of
  /// changes, and a wait looks once in a second besides.
  duration first_pause = std::chrono::milliseconds(5);
  duration longest_pause = std::chrono::milliseconds(200);
};

/// Keeps each key in a file of a folder, which all its clients can reach, over NFS too.
/// A value is written beside its place and renamed, so that a reader sees the old one or
/// the new. What changes a key holds a lock of the folder, which the kernel takes from a
/// process that dies.
///
///     mw::file_store store("/shared/job17/store");
///     mw::world w(rt, store, {.name = "left", .rank = 1, .size = 2});
///     co_await w;
///
/// A file system with locks that exclude nothing is refused: they are tried in the
/// folder, and a mount without them (NFS with `nolock`) is known by its options. What is
/// left by a process that was killed is removed by the next one. Values survive a crash
/// of the host only as far as the file system keeps them: nothing is forced to a disk. A
/// key that is set and erased between two looks of a wait is not seen by it.
///
/// Lifetime: it has a thread of its own, since calls of a file system may block. It may
/// be destroyed while operations are in flight; they end as they would have. Thread: any.
/// Errors: those of `store`: `unreachable` if the folder cannot be used or its lock is
/// not free in time, and `refused` naming the file if the disk is full.
class file_store final : public store {
 public:
  /// Makes the folder if it is not there. Errors: std::system_error naming the folder;
  /// std::runtime_error saying why its locks cannot be trusted.
  explicit file_store(std::string folder, file_store_options options = {});
  ~file_store() override;

  [[nodiscard]] std::string address() const override;
  [[nodiscard]] std::string trouble() const override;
  task<store_reply> perform(store_request request) override;

 private:
  class contents;

  std::shared_ptr<contents> contents_;
};

}  // namespace manyworlds::inline v0
