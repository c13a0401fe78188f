#include "mpmd/sqlite_library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <string>

#include "mpmd/context_store.hpp"

namespace manyworlds::inline v0::detail {

namespace {

// The version from which `sqlite3_system_errno` tells why a file failed.
constexpr int oldest_version = 3'012'000;

[[noreturn]] void refuse_library(std::string why) {
  throw context_error(context_trouble::unsupported, "SQLite: " + std::move(why));
}

template <class Function>
void find_sqlite(void* library, const char* name, Function*& f) {
  f = reinterpret_cast<Function*>(::dlsym(library, name));
  if (!f)
    refuse_library(fmt::format("libsqlite3 has no {}: install 3.12 or later", name));
}

}  // namespace

sqlite_library::sqlite_library() {
  // It is never closed: it costs nothing, and another part of the program may use it.
  void* const library = ::dlopen("libsqlite3.so.0", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* const said = ::dlerror();
    refuse_library(fmt::format("libsqlite3 cannot be loaded (Debian: libsqlite3-0): {}",
                               said ? said : "no reason is told"));
  }
  find_sqlite(library, "sqlite3_libversion_number", libversion_number);
  find_sqlite(library, "sqlite3_threadsafe", threadsafe);
  find_sqlite(library, "sqlite3_open_v2", open_v2);
  find_sqlite(library, "sqlite3_close", close);
  find_sqlite(library, "sqlite3_busy_timeout", busy_timeout);
  find_sqlite(library, "sqlite3_extended_result_codes", extended_result_codes);
  find_sqlite(library, "sqlite3_errmsg", errmsg);
  find_sqlite(library, "sqlite3_system_errno", system_errno);
  find_sqlite(library, "sqlite3_file_control", file_control);
  find_sqlite(library, "sqlite3_db_readonly", db_readonly);
  find_sqlite(library, "sqlite3_get_autocommit", get_autocommit);
  find_sqlite(library, "sqlite3_prepare_v2", prepare_v2);
  find_sqlite(library, "sqlite3_finalize", finalize);
  find_sqlite(library, "sqlite3_step", step);
  find_sqlite(library, "sqlite3_bind_int64", bind_int64);
  find_sqlite(library, "sqlite3_bind_blob", bind_blob);
  find_sqlite(library, "sqlite3_column_type", column_type);
  find_sqlite(library, "sqlite3_column_int64", column_int64);
  find_sqlite(library, "sqlite3_column_blob", column_blob);
  find_sqlite(library, "sqlite3_column_bytes", column_bytes);
  find_sqlite(library, "sqlite3_column_text", column_text);
  if (libversion_number() < oldest_version)
    refuse_library("libsqlite3 is older than 3.12: install a later one");
  if (threadsafe() == 0)
    refuse_library("libsqlite3 was built for one thread alone (SQLITE_THREADSAFE=0)");
}

}  // namespace manyworlds::inline v0::detail
