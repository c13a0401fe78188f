// File folder: the keys and queues of a file store as files, without waiting.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "io/descriptor.hpp"
#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0::detail {

/// Why a call of the file system failed; the text names the file.
class file_trouble : public std::runtime_error {
 public:
  file_trouble(const std::string& what, int error);

  /// Returns whether the file system takes no more.
  [[nodiscard]] bool is_full() const noexcept;

 private:
  int error_;
};

/// The files of one folder: `keys/` has one for each key, `queues/` a folder for each
/// queue. A name is the key with the bytes that are no letters or digits as %xx; that of
/// a long key is a hash, and the file begins with the key. Thread: one at a time.
/// Errors: `file_trouble`.
class file_folder {
 public:
  /// Makes what is missing, proves that locks exclude, and removes the drafts of killed
  /// processes. Errors: std::system_error; std::runtime_error saying what is wrong with
  /// the locks.
  explicit file_folder(std::string path);
  file_folder(const file_folder&) = delete;
  file_folder& operator=(const file_folder&) = delete;

  /// Excludes all other clients while it lives, if `is_held`.
  class hold {
   public:
    explicit hold(const file_folder& of) noexcept : folder_(of), is_held_(of.lock()) {}
    hold(const hold&) = delete;
    hold& operator=(const hold&) = delete;
    ~hold() {
      if (is_held_) folder_.unlock();
    }
    [[nodiscard]] bool is_held() const noexcept { return is_held_; }

   private:
    const file_folder& folder_;
    bool is_held_;
  };

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Returns whether the file system tells of all changes: it is of this host alone.
  [[nodiscard]] bool is_local() const noexcept { return is_local_; }
  [[nodiscard]] std::string keys_folder() const { return path_ + "/keys"; }
  [[nodiscard]] std::string queues_folder() const { return path_ + "/queues"; }

  /// Makes an NFS client ask its server again what is there.
  void look_again() const noexcept;
  [[nodiscard]] std::optional<std::string> read(const std::string& key) const;
  [[nodiscard]] bool contains(const std::string& key) const;
  [[nodiscard]] std::vector<std::string> keys() const;
  [[nodiscard]] std::int64_t key_count() const;
  [[nodiscard]] std::int64_t queue_size(const std::string& queue) const;
  /// Returns a number that grows with each push, so that a wait sees one that was taken
  /// at once.
  [[nodiscard]] std::uint64_t pushes(const std::string& queue) const;

  // Precondition of these: the folder is held.
  void write(const std::string& key, const std::string& value);
  [[nodiscard]] bool erase(const std::string& key);
  void push(const std::string& queue, const std::string& value);
  [[nodiscard]] std::optional<std::string> pop(const std::string& queue);

 private:
  [[nodiscard]] bool lock() const noexcept;
  void unlock() const noexcept;
  void prove_locks() const;
  void remove_drafts() const;
  [[nodiscard]] std::string file_of(const std::string& key) const;
  [[nodiscard]] std::string folder_of(const std::string& queue) const;
  struct queue_files {
    std::vector<std::uint64_t> places;  // of the values, in their order
    std::uint64_t next = 0;
  };
  [[nodiscard]] queue_files files_of(const std::string& queue) const;
  void put(const std::string& file, const std::string& head, const std::string& value);

  const std::string path_;
  const std::string draft_;
  unique_descriptor lock_;
  bool is_local_ = false;
};

}  // namespace manyworlds::inline v0::detail
