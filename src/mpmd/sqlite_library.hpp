// SQLite library: libsqlite3, opened at run time.
#pragma once

#include <sqlite3.h>

namespace manyworlds::inline v0::detail {

/// The functions of libsqlite3 that are called. It is looked for at run time, so that a
/// program starts on machines without it.
struct sqlite_library {
  /// Errors: context_error (`unsupported`) saying what is missing.
  sqlite_library();

  decltype(&::sqlite3_libversion_number) libversion_number;
  decltype(&::sqlite3_threadsafe) threadsafe;
  decltype(&::sqlite3_open_v2) open_v2;
  decltype(&::sqlite3_close) close;
  decltype(&::sqlite3_busy_timeout) busy_timeout;
  decltype(&::sqlite3_extended_result_codes) extended_result_codes;
  decltype(&::sqlite3_errmsg) errmsg;
  decltype(&::sqlite3_system_errno) system_errno;
  decltype(&::sqlite3_file_control) file_control;
  decltype(&::sqlite3_db_readonly) db_readonly;
  decltype(&::sqlite3_get_autocommit) get_autocommit;
  decltype(&::sqlite3_prepare_v2) prepare_v2;
  decltype(&::sqlite3_finalize) finalize;
  decltype(&::sqlite3_step) step;
  decltype(&::sqlite3_bind_int64) bind_int64;
  decltype(&::sqlite3_bind_blob) bind_blob;
  decltype(&::sqlite3_column_type) column_type;
  decltype(&::sqlite3_column_int64) column_int64;
  decltype(&::sqlite3_column_blob) column_blob;
  decltype(&::sqlite3_column_bytes) column_bytes;
  decltype(&::sqlite3_column_text) column_text;
};

}  // namespace manyworlds::inline v0::detail
