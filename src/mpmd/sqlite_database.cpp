#include "mpmd/sqlite_database.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

namespace manyworlds::inline v0::detail {

sqlite_database::sqlite_database(const sqlite_library& library, std::string path,
                                 bool makes_it, duration patience)
    : library_(library), path_(std::move(path)) {
  int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE;
  if (makes_it) flags |= SQLITE_OPEN_CREATE;
  const int code = library_.open_v2(path_.c_str(), &connection_, flags, nullptr);
  if (code != SQLITE_OK) {
    // There is a connection after most errors, which tells them.
    try {
      fail(code);
    } catch (...) {
      library_.close(connection_);
      throw;
    }
  }
  library_.extended_result_codes(connection_, 1);
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(patience).count();
  library_.busy_timeout(connection_, static_cast<int>(ms));
}

void sqlite_database::execute(const char* sql) {
  sqlite_statement all(*this, sql);
  while (all.step()) {}
}

void sqlite_database::roll_back() noexcept {
  if (library_.get_autocommit(connection_) != 0) return;
  sqlite3_stmt* statement = nullptr;
  if (library_.prepare_v2(connection_, "ROLLBACK", -1, &statement, nullptr) == SQLITE_OK)
    static_cast<void>(library_.step(statement));
  library_.finalize(statement);
}

bool sqlite_database::has_moved() const noexcept {
  int moved = 0;
  const int code =
      library_.file_control(connection_, "main", SQLITE_FCNTL_HAS_MOVED, &moved);
  return code == SQLITE_OK && moved != 0;
}

bool sqlite_database::is_read_only() const noexcept {
  return library_.db_readonly(connection_, "main") != 0;
}

/// Returns the error's number by which the system refused the file or its journal. What
/// SQLite tells of the connection is lost while it takes back what was begun.
int sqlite_database::system_error() const noexcept {
  if (!connection_) return 0;
  int error = 0;
  library_.file_control(connection_, "main", SQLITE_FCNTL_LAST_ERRNO, &error);
  if (error != 0) return error;
  sqlite3_file* journal = nullptr;
  library_.file_control(connection_, "main", SQLITE_FCNTL_JOURNAL_POINTER, &journal);
  if (journal && journal->pMethods)
    journal->pMethods->xFileControl(journal, SQLITE_FCNTL_LAST_ERRNO, &error);
  return error != 0 ? error : library_.system_errno(connection_);
}

void sqlite_database::fail(int code) const {
  if ((code & 0xff) == SQLITE_NOMEM) throw std::bad_alloc();
  const int system_error = this->system_error();
  std::string text = fmt::format(
      "{}: {}", path_, connection_ ? library_.errmsg(connection_) : "no connection");
  const context_trouble trouble = trouble_of(code, system_error);
  if ((code & 0xff) == SQLITE_BUSY) text += ": another process holds it";
  const bool is_of_system =
      (code & 0xff) == SQLITE_IOERR || (code & 0xff) == SQLITE_CANTOPEN;
  if (is_of_system && system_error != 0)
    text += fmt::format(" ({})", std::strerror(system_error));
  throw context_error(trouble, std::move(text));
}

context_trouble sqlite_database::trouble_of(int code, int system_error) const noexcept {
  switch (code & 0xff) {
    case SQLITE_FULL:
      return context_trouble::full;
    case SQLITE_TOOBIG:
      return context_trouble::too_large;
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return context_trouble::unsupported;
    case SQLITE_READONLY:
      // The file says of itself that it may not be written.
      return ::access(path_.c_str(), W_OK) == 0 ? context_trouble::damaged
                                                : context_trouble::unsupported;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL:
    case SQLITE_INTERRUPT:
      return context_trouble::unreachable;
    case SQLITE_IOERR:
      // A quota, or a limit of the process.
      if (system_error == ENOSPC || system_error == EDQUOT || system_error == EFBIG)
        return context_trouble::full;
      return context_trouble::unreachable;
    default:
      // All else (no such table, another type, no database) tells that the file is not
      // what was written.
      return context_trouble::damaged;
  }
}

sqlite_statement::sqlite_statement(sqlite_database& in, const char* sql) : in_(in) {
  const int code =
      in_.library_.prepare_v2(in_.connection_, sql, -1, &statement_, nullptr);
  if (code != SQLITE_OK) in_.fail(code);
}

void sqlite_statement::bind(int place, std::uint64_t number) {
  const int code =
      in_.library_.bind_int64(statement_, place, static_cast<sqlite3_int64>(number));
  if (code != SQLITE_OK) in_.fail(code);
}

void sqlite_statement::bind(int place, std::span<const std::byte> raw) {
  if (raw.size() > std::size_t{1} << 30) in_.fail(SQLITE_TOOBIG);
  const int code = in_.library_.bind_blob(statement_, place, raw.data(),
                                          static_cast<int>(raw.size()), SQLITE_STATIC);
  if (code != SQLITE_OK) in_.fail(code);
}

bool sqlite_statement::step() {
  const int code = in_.library_.step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) in_.fail(code);
  return false;
}

void sqlite_statement::expect(int column, int type) const {
  if (in_.library_.column_type(statement_, column) == type) return;
  throw context_error(context_trouble::damaged,
                      fmt::format("{}: column {} of a row has another type than what was "
                                  "written",
                                  in_.path_, column + 1));
}

std::uint64_t sqlite_statement::number(int column) {
  expect(column, SQLITE_INTEGER);
  return static_cast<std::uint64_t>(in_.library_.column_int64(statement_, column));
}

std::span<const std::byte> sqlite_statement::raw(int column) {
  expect(column, SQLITE_BLOB);
  const void* const from = in_.library_.column_blob(statement_, column);
  const int size = in_.library_.column_bytes(statement_, column);
  // Null for no bytes, and for no memory.
  if (!from && size > 0) throw std::bad_alloc();
  return {static_cast<const std::byte*>(from), static_cast<std::size_t>(size)};
}

std::string sqlite_statement::text(int column) {
  expect(column, SQLITE_TEXT);
  const unsigned char* const from = in_.library_.column_text(statement_, column);
  if (!from) throw std::bad_alloc();
  return reinterpret_cast<const char*>(from);
}

}  // namespace manyworlds::inline v0::detail
