// Context file: a job's context in one file of SQLite's, by calls that block.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mpmd/context_log.hpp"
#include "mpmd/sqlite_database.hpp"

namespace manyworlds::inline v0::detail {

struct context_file_options {
  /// How long an operation waits for another process that holds the file.
  duration patience = std::chrono::seconds(5);
  /// A log with more bytes than these and than its snapshot is replaced by a snapshot.
  std::size_t longest_log = std::size_t{1} << 20;
};

/// The rows of the context, and a head that says which is the last and which term was
/// taken. One transaction changes both, and compares the term first.
///
/// The journal is a rollback journal and no write-ahead log, though that would take one
/// synchronisation of the disk in place of five. A reader of a write-ahead log takes it
/// to end at the first frame that is wrong: a flipped bit there takes back what was
/// written after it, and nothing tells. Here what was written is in the file itself,
/// where rows and head tell. What a crash has torn is what the journal takes back, so a
/// row that is wrong is damage wherever it stands.
///
/// The file is made under another name and comes to its own whole. So an empty file of
/// this name is one that was cut off, and is refused; no file is an empty context, unless
/// its journal is left.
///
/// Thread: one at a time; every call may block on the disk, or for the patience. Errors:
/// those of `context_store`. After one the file is opened and checked anew.
class context_file {
 public:
  /// Opens nothing yet. Errors: `unsupported` if there is no libsqlite3.
  context_file(std::string path, context_file_options options);

  std::uint64_t term();
  std::uint64_t take_term(std::uint64_t seen);
  context_values load();
  void write(std::uint64_t term, const std::vector<context_write>& changes);

  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  template <class Operation>
  auto perform(const Operation& operation);
  sqlite_database& opened();
  void make();
  void check(sqlite_database& db) const;
  [[nodiscard]] context_head read_head(sqlite_database& db) const;
  [[nodiscard]] context_head head_for_change(sqlite_database& db) const;
  void write_head(sqlite_database& db, const context_head& head) const;
  [[nodiscard]] context_log read_log(sqlite_database& db, const context_head& head) const;
  [[nodiscard]] context_log log_at(sqlite_database& db, const context_head& head);
  [[noreturn]] void refuse(context_trouble trouble, const std::string& text) const;

  const std::string path_;
  const context_file_options options_;
  const sqlite_library library_;
  std::optional<sqlite_database> database_;
  /// The log as this connection left it; nothing after an error.
  std::optional<context_log> log_;
};

}  // namespace manyworlds::inline v0::detail
