#include "mpmd/context_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "io/descriptor.hpp"

namespace manyworlds::inline v0::detail {

namespace {

constexpr std::uint64_t format_version = 1;

// Each constraint is checked by reading; here they would only be other words that a
// flipped bit could change.
const char* const log_table =
    "CREATE TABLE IF NOT EXISTS log(sequence INTEGER PRIMARY KEY, term, body, checksum)";
const char* const head_table =
    "CREATE TABLE IF NOT EXISTS head(id INTEGER PRIMARY KEY, version, term, sequence, "
    "last, checksum)";

std::uint64_t head_checksum(std::uint64_t version, const context_head& head) noexcept {
  return context_checksum(head.checksum()).number(version).value();
}

/// Gives a file its name unless another has it. Returns the error's number, or 0.
int rename_to_new(const std::string& from, const std::string& to) noexcept {
  // By number: not every C library has the function.
  const long done = ::syscall(SYS_renameat2, AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(),
                              RENAME_NOREPLACE);
  return done == 0 ? 0 : errno;
}

/// Puts the name of a file on the disk, too.
int synchronise_folder_of(const std::string& path) {
  std::string folder = std::filesystem::path(path).parent_path().string();
  if (folder.empty()) folder = ".";
  const unique_descriptor at(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return at && ::fsync(at.get()) == 0 ? 0 : errno;
}

}  // namespace

context_file::context_file(std::string path, context_file_options options)
    : path_(std::move(path)), options_(options) {}

void context_file::refuse(context_trouble trouble, const std::string& text) const {
  throw context_error(trouble, fmt::format("{}: {}", path_, text));
}

/// Runs an operation. What it has left behind when it fails is forgotten and read anew.
template <class Operation>
auto context_file::perform(const Operation& operation) {
  std::string damage;
  try {
    return operation(opened());
  } catch (const context_error& e) {
    const bool is_well =
        e.kind() == context_trouble::deposed || e.kind() == context_trouble::too_large;
    log_.reset();
    if (!is_well) database_.reset();
    throw;
  } catch (const context_damage& e) {
    damage = e.what();
  } catch (...) {
    log_.reset();
    database_.reset();
    throw;
  }
  log_.reset();
  database_.reset();
  refuse(context_trouble::damaged, damage);
}

std::uint64_t context_file::term() {
  return perform([this](sqlite_database& db) { return read_head(db).term; });
}

std::uint64_t context_file::take_term(std::uint64_t seen) {
  return perform([&](sqlite_database& db) {
    sqlite_transaction changing(db, sqlite_transaction::kind::writes);
    context_head head = head_for_change(db);
    if (head.term > seen)
      refuse(context_trouble::deposed,
             fmt::format("term {} is taken by another master", head.term));
    if (head.term < seen)
      refuse(
          context_trouble::damaged,
          fmt::format("term {} was taken, and the file has only {}: it is an older one",
                      seen, head.term));
    ++head.term;
    write_head(db, head);
    changing.commit();
    return head.term;
  });
}

context_values context_file::load() {
  return perform([this](sqlite_database& db) {
    const sqlite_transaction reading(db, sqlite_transaction::kind::reads);
    log_ = read_log(db, read_head(db));
    return log_->values();
  });
}

void context_file::write(std::uint64_t term, const std::vector<context_write>& changes) {
  check_context_write(changes);
  perform([&](sqlite_database& db) {
    sqlite_transaction changing(db, sqlite_transaction::kind::writes);
    context_head head = head_for_change(db);
    if (head.term > term)
      refuse(context_trouble::deposed,
             fmt::format("term {} has ended: another master has taken term {}", term,
                         head.term));
    if (head.term < term)
      refuse(
          context_trouble::damaged,
          fmt::format("term {} was taken, and the file has only {}: it is an older one",
                      term, head.term));
    context_log log = log_at(db, head);
    const bool is_long = log.is_long(options_.longest_log);
    if (is_long) db.execute("DELETE FROM log");
    const context_row row =
        is_long ? log.begin_anew(term, changes) : log.append(term, changes);
    {
      sqlite_statement inserting(db, "INSERT INTO log VALUES(?, ?, ?, ?)");
      inserting.bind(1, row.sequence);
      inserting.bind(2, row.term);
      inserting.bind(3, row.body);
      inserting.bind(4, row.checksum);
      inserting.step();
    }
    head.sequence = log.sequence();
    head.last = log.last();
    write_head(db, head);
    changing.commit();
    log_ = std::move(log);
  });
}

/// Returns the open file; makes it if there is none.
sqlite_database& context_file::opened() {
  if (database_) return *database_;
  struct stat seen {};
  if (::stat(path_.c_str(), &seen) != 0) {
    if (errno != ENOENT) refuse(context_trouble::unsupported, std::strerror(errno));
    // SQLite would play what is left of another file into the new one. A file that is
    // there by now was made by another master, and the journal is its own.
    const std::string journal = path_ + "-journal";
    const bool has_journal = ::access(journal.c_str(), F_OK) == 0;
    if (has_journal && ::access(path_.c_str(), F_OK) != 0)
      refuse(context_trouble::damaged,
             fmt::format("it was removed, and its journal is left (to begin anew, remove "
                         "{}, too)",
                         journal));
    make();
  } else if (!S_ISREG(seen.st_mode)) {
    refuse(context_trouble::unsupported, "it is no file");
  } else if (seen.st_size == 0) {
    refuse(context_trouble::damaged,
           "it is empty, and no context ever is: what was in it is lost (to begin anew, "
           "remove it and its journal)");
  }
  try {
    database_.emplace(library_, path_, false, options_.patience);
    check(*database_);
  } catch (...) {
    database_.reset();
    throw;
  }
  return *database_;
}

/// Makes the file under another name, which a maker that was killed leaves for the next.
/// Where several make it at once, they make one and the same.
void context_file::make() {
  const std::string draft = path_ + ".draft";
  {
    sqlite_database db(library_, draft, true, options_.patience);
    db.execute("PRAGMA synchronous=FULL");
    sqlite_transaction making(db, sqlite_transaction::kind::writes);
    db.execute(log_table);
    db.execute(head_table);
    bool is_made = false;
    {
      sqlite_statement heads(db, "SELECT id FROM head");
      is_made = heads.step();
    }
    if (!is_made) {
      db.execute("INSERT INTO head VALUES(1, 0, 0, 0, 0, 0)");
      write_head(db, context_head());
    }
    making.commit();
  }
  // Facts of workers may be secrets. The draft may have its name already.
  static_cast<void>(::chmod(draft.c_str(), S_IRUSR | S_IWUSR));
  const int error = rename_to_new(draft, path_);
  // Another has been faster: with this draft, or with one before it.
  if (error == EEXIST) ::unlink(draft.c_str());
  if (error == 0 || error == EEXIST || error == ENOENT) return;
  refuse(context_trouble::unsupported,
         fmt::format("its file system cannot name a file without replacing another ({}): "
                     "choose a local disk",
                     std::strerror(error)));
}

/// Sets up a connection, and checks what SQLite itself can tell of the file.
void context_file::check(sqlite_database& db) const {
  if (const int error = synchronise_folder_of(path_); error != 0)
    refuse(context_trouble::unsupported,
           fmt::format("its folder cannot be synchronised: {}", std::strerror(error)));
  db.execute("PRAGMA synchronous=FULL");
  // The journal's header is overwritten, and synchronised, in place of an erased name:
  // that is the fastest of the rollback journals.
  db.execute("PRAGMA journal_mode=PERSIST");
  db.execute("PRAGMA journal_size_limit=1048576");
  db.execute("PRAGMA cell_size_check=ON");
  db.execute("PRAGMA trusted_schema=OFF");
  db.execute("PRAGMA temp_store=MEMORY");
  sqlite_statement checking(db, "PRAGMA quick_check(1)");
  std::string found = "no answer";
  if (checking.step()) found = checking.text(0);
  if (found != "ok")
    refuse(context_trouble::damaged, "SQLite finds it damaged: " + found);
}

context_head context_file::read_head(sqlite_database& db) const {
  // A file that was put in this one's place is not written by those that have this one.
  if (db.has_moved())
    refuse(context_trouble::damaged, "it was removed or replaced while it was in use");
  sqlite_statement heads(db, "SELECT version, term, sequence, last, checksum FROM head");
  if (!heads.step()) throw context_damage("its head is missing");
  const std::uint64_t version = heads.number(0);
  const context_head head{heads.number(1), heads.number(2), heads.number(3)};
  if (heads.number(4) != head_checksum(version, head))
    throw context_damage("its head is not what was written: its checksum is wrong");
  if (heads.step()) throw context_damage("it has two heads");
  if (version != format_version)
    refuse(context_trouble::unsupported,
           fmt::format("it has format {}, and this version reads {}", version,
                       format_version));
  return head;
}

context_head context_file::head_for_change(sqlite_database& db) const {
  if (db.is_read_only()) {
    const bool may_write = ::access(path_.c_str(), W_OK) == 0;
    refuse(may_write ? context_trouble::damaged : context_trouble::unsupported,
           may_write ? "it says of itself that it may not be written"
                     : "it may not be written");
  }
  return read_head(db);
}

void context_file::write_head(sqlite_database& db, const context_head& head) const {
  sqlite_statement setting(
      db, "UPDATE head SET version = ?, term = ?, sequence = ?, last = ?, checksum = ?");
  setting.bind(1, format_version);
  setting.bind(2, head.term);
  setting.bind(3, head.sequence);
  setting.bind(4, head.last);
  setting.bind(5, head_checksum(format_version, head));
  setting.step();
}

context_log context_file::read_log(sqlite_database& db, const context_head& head) const {
  context_log log;
  sqlite_statement rows(
      db, "SELECT sequence, term, body, checksum FROM log ORDER BY sequence");
  while (rows.step()) {
    const std::span<const std::byte> body = rows.raw(2);
    log.play({rows.number(0), rows.number(1), bytes(body.begin(), body.end()),
              rows.number(3)});
  }
  log.expect_end(head);
  return log;
}

/// Returns the log that ends at this head: the one that is kept, or read anew if another
/// connection has written since.
context_log context_file::log_at(sqlite_database& db, const context_head& head) {
  std::optional<context_log> kept = std::exchange(log_, std::nullopt);
  if (kept && kept->sequence() == head.sequence && kept->last() == head.last)
    return std::move(*kept);
  return read_log(db, head);
}

}  // namespace manyworlds::inline v0::detail
