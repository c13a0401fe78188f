// SQLite database: one connection to a database file, its statements and transactions.
#pragma once

#include <sqlite3.h>

#include <chrono>
#include <cstdint>
#include <span>
#include <string>

#include "manyworlds/time.hpp"
#include "mpmd/context_store.hpp"
#include "mpmd/sqlite_library.hpp"

namespace manyworlds::inline v0::detail {

/// A connection. Thread: one at a time. Errors: context_error, which names the file:
/// `full`, `damaged`, `unreachable` after another process has held the file for the
/// patience or for a failing disk, and `unsupported` for folders and permissions.
class sqlite_database {
 public:
  /// Opens an existing file, or makes an empty one. Lifetime: `library` outlives this.
  sqlite_database(const sqlite_library& library, std::string path, bool makes_it,
                  duration patience);
  sqlite_database(const sqlite_database&) = delete;
  sqlite_database& operator=(const sqlite_database&) = delete;
  /// Precondition: no statement is left.
  ~sqlite_database() { library_.close(connection_); }

  /// Runs one statement to its end, whatever rows it gives.
  void execute(const char* sql);
  /// Rolls back what was begun and not committed. What cannot be undone now is undone
  /// when the file is opened next: its journal stays.
  void roll_back() noexcept;
  /// Returns whether another file, or none, has the file's name by now.
  [[nodiscard]] bool has_moved() const noexcept;
  /// Returns whether the file can be read alone.
  [[nodiscard]] bool is_read_only() const noexcept;

 private:
  friend class sqlite_statement;
  [[noreturn]] void fail(int code) const;
  [[nodiscard]] int system_error() const noexcept;
  [[nodiscard]] context_trouble trouble_of(int code, int system_error) const noexcept;

  const sqlite_library& library_;
  const std::string path_;
  sqlite3* connection_ = nullptr;
};

/// A statement that is run once.
///
///     sqlite_statement rows(db, "SELECT sequence FROM log WHERE sequence > ?");
///     rows.bind(1, 17);
///     while (rows.step()) use(rows.number(0));
class sqlite_statement {
 public:
  sqlite_statement(sqlite_database& in, const char* sql);
  sqlite_statement(const sqlite_statement&) = delete;
  sqlite_statement& operator=(const sqlite_statement&) = delete;
  ~sqlite_statement() { in_.library_.finalize(statement_); }

  /// Numbers of 64 bits are kept as SQLite's signed ones.
  void bind(int place, std::uint64_t number);
  /// Lifetime: the bytes outlive the statement.
  void bind(int place, std::span<const std::byte> raw);
  /// Returns whether there is another row.
  bool step();
  /// Reads a column. Errors: `damaged` if it has another type.
  [[nodiscard]] std::uint64_t number(int column);
  [[nodiscard]] std::span<const std::byte> raw(int column);
  [[nodiscard]] std::string text(int column);

 private:
  void expect(int column, int type) const;

  sqlite_database& in_;
  sqlite3_stmt* statement_ = nullptr;
};

/// A transaction, which is rolled back unless it was committed.
class sqlite_transaction {
 public:
  enum class kind : unsigned char { reads, writes };

  sqlite_transaction(sqlite_database& in, kind what) : in_(in) {
    // One that writes has the lock from its start: none has read what another changes.
    in_.execute(what == kind::writes ? "BEGIN IMMEDIATE" : "BEGIN");
  }
  sqlite_transaction(const sqlite_transaction&) = delete;
  sqlite_transaction& operator=(const sqlite_transaction&) = delete;
  ~sqlite_transaction() {
    if (!is_committed_) in_.roll_back();
  }

  void commit() {
    in_.execute("COMMIT");
    is_committed_ = true;
  }

 private:
  sqlite_database& in_;
  bool is_committed_ = false;
};

}  // namespace manyworlds::inline v0::detail
