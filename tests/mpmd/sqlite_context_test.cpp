// Contexts in files of SQLite's: damage, full disks, killed writers, and bounds. The
// numbers are those of the catalogue of role graphs (B59 and so on).
#include "mpmd/sqlite_context.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "manyworlds/detail/seeded_random.hpp"
#include "mpmd/support/context_fixture.hpp"
#include "store/child.hpp"

using namespace manyworlds;
using namespace manyworlds::testing;

TEST_SUITE_BEGIN("SQLite context");

namespace {

std::string content_of_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void replace_file(const std::filesystem::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

/// Writes a small context with a snapshot and rows behind it, over several pages.
context_values write_small_context(const std::string& file) {
  sqlite_context kept(file, {.longest_log = 3000});
  const std::uint64_t term = context_result(kept.take_term(0));
  for (int i = 0; i < 40; ++i)
    set_context_value(kept, term, "key" + std::to_string(i % 7),
                      std::string(static_cast<std::size_t>(50 + 10 * i),
                                  static_cast<char>('a' + i % 26)));
  set_context_value(kept, term, "large", std::string(9000, 'L'));
  return context_result(kept.load());
}

/// What a context with these files says: its values, or its trouble.
struct verdict_of_load {
  context_values values;
  told_trouble trouble;
};

verdict_of_load load_verdict(const std::string& file) {
  verdict_of_load told;
  sqlite_context kept(file);
  try {
    told.values = context_result(kept.load());
    CHECK(context_result(kept.term()) == 1);
  } catch (const context_error& e) {
    told.trouble = {e.kind(), e.what()};
  }
  return told;
}

/// Checks that what is loaded is the last good state, or refused as damaged. Returns
/// whether it was refused.
bool is_good_or_refused(const std::string& file, const context_values& good) {
  const verdict_of_load told = load_verdict(file);
  CAPTURE(told.trouble.text);
  if (!told.trouble.kind) {
    CHECK(told.values == good);
    return false;
  }
  CHECK(told.trouble == context_trouble::damaged);
  CHECK(told.trouble.text.find(file) != std::string::npos);
  return true;
}

}  // namespace

TEST_CASE("graph B59: a flipped bit gives the last good state or a refusal") {
  const context_folder folder;
  const std::string file = folder.file();
  const context_values good = write_small_context(file);
  const std::string content = content_of_file(file);
  const std::string journal = content_of_file(file + "-journal");
  REQUIRE(content.size() > 4096);
  seeded_random random(59);
  const auto try_with = [&](std::size_t at, unsigned bit) {
    std::string flipped = content;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << bit));
    replace_file(file, flipped);
    replace_file(file + "-journal", journal);
    INFO("bit ", bit, " of byte ", at, " of ", content.size());
    return is_good_or_refused(file, good);
  };
  int refused = 0;
  // What says how the file is to be read: the file's head, and the heads of pages.
  for (std::size_t at = 0; at < 100; ++at)
    refused += try_with(at, static_cast<unsigned>(random.below(8)));
  for (std::size_t page = 0; page < content.size(); page += 4096) {
    for (std::size_t at = page == 0 ? 100 : 0; at < (page == 0 ? 112 : 12); ++at)
      refused += try_with(page + at, static_cast<unsigned>(random.below(8)));
    // A page is filled from its end: there is our head, and the youngest row's end.
    for (std::size_t at = 4096 - 48; at < 4096; ++at)
      refused += try_with(page + at, static_cast<unsigned>(random.below(8)));
  }
  for (int i = 0; i < 300; ++i)
    refused +=
        try_with(random.below(content.size()), static_cast<unsigned>(random.below(8)));
  // Most of the file is content.
  CHECK(refused > 200);
}

TEST_CASE("graph B59: a flipped bit of the journal at rest changes nothing") {
  const context_folder folder;
  const std::string file = folder.file();
  const context_values good = write_small_context(file);
  const std::string content = content_of_file(file);
  const std::string journal = content_of_file(file + "-journal");
  REQUIRE_FALSE(journal.empty());
  seeded_random random(60);
  for (int i = 0; i < 60; ++i) {
    std::string flipped = journal;
    const std::size_t at =
        i < 28 ? static_cast<std::size_t>(i) : random.below(flipped.size());
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << random.below(8)));
    replace_file(file, content);
    replace_file(file + "-journal", flipped);
    INFO("byte ", at);
    CHECK_FALSE(is_good_or_refused(file, good));
  }
}

TEST_CASE("graph B59: a file that was cut off is refused, down to no byte at all") {
  const context_folder folder;
  const std::string file = folder.file();
  const context_values good = write_small_context(file);
  const std::string content = content_of_file(file);
  for (std::size_t size = 0; size < content.size(); size += 512) {
    replace_file(file, content.substr(0, size));
    std::filesystem::remove(file + "-journal");
    INFO("cut to ", size, " of ", content.size());
    // The last pages may be free ones, and then there is all that was written.
    is_good_or_refused(file, good);
    if (size < content.size() / 2) CHECK(is_good_or_refused(file, good));
  }
  replace_file(file, "");
  const told_trouble empty = load_verdict(file).trouble;
  CHECK(empty == context_trouble::damaged);
  CHECK(empty.text.find("it is empty, and no context ever is") != std::string::npos);
  // It was not made anew meanwhile.
  CHECK(content_of_file(file).empty());
}

TEST_CASE(
    "graph B59: the journal of a file that was removed is not played into a new one") {
  const context_folder folder;
  const std::string file = folder.file();
  write_small_context(file);
  std::filesystem::remove(file);
  for (int i = 0; i < 2; ++i) {
    const told_trouble told = load_verdict(file).trouble;
    CHECK(told == context_trouble::damaged);
    CHECK(told.text.find("remove " + file + "-journal, too") != std::string::npos);
  }
  CHECK_FALSE(std::filesystem::exists(file));
  std::filesystem::remove(file + "-journal");
  CHECK(context_result(sqlite_context(file).load()).empty());
}

TEST_CASE("graph B59: a row that was changed by hand is named") {
  const context_folder folder;
  const std::string file = folder.file();
  write_small_context(file);
  const sqlite_library library;
  const auto change = [&](const char* sql) {
    sqlite_database db(library, file, false, 5s);
    db.execute(sql);
  };
  change("UPDATE head SET term = term + 1");
  CHECK(load_verdict(file).trouble.text.find("its head is not what was written") !=
        std::string::npos);
  change("UPDATE head SET term = term - 1");
  change("UPDATE log SET body = zeroblob(length(body)) WHERE sequence = 39");
  const told_trouble told = load_verdict(file).trouble;
  CHECK(told == context_trouble::damaged);
  CHECK(told.text.find("row 39 is not what was written") != std::string::npos);
  change("DELETE FROM log WHERE sequence >= 39");
  CHECK(load_verdict(file).trouble.text.find(
            "the rows end with 38: row 41 was written") != std::string::npos);
  change("DELETE FROM log");
  CHECK(load_verdict(file).trouble == context_trouble::damaged);
  change("DELETE FROM head");
  CHECK(load_verdict(file).trouble.text.find("its head is missing") != std::string::npos);
  change("DROP TABLE head");
  CHECK(load_verdict(file).trouble == context_trouble::damaged);
}

TEST_CASE("graph B59: an older copy that was put back is no state to go on from") {
  const context_folder folder;
  const std::string file = folder.file();
  sqlite_context kept(file);
  const std::uint64_t first = context_result(kept.take_term(0));
  set_context_value(kept, first, "a", "1");
  const std::string older = content_of_file(file);
  const std::uint64_t second = context_result(kept.take_term(first));
  set_context_value(kept, second, "a", "2");
  // In place of the file, as a restored backup is.
  replace_file(file + ".back", older);
  std::filesystem::rename(file + ".back", file);
  const told_trouble told = context_trouble_of(kept.write(second, {}));
  CHECK(told == context_trouble::damaged);
  CHECK(told.text.find("it was removed or replaced") != std::string::npos);
  CHECK(context_trouble_of(kept.write(second, {})) == context_trouble::damaged);
  std::filesystem::remove(file);
  CHECK(context_trouble_of(kept.write(second, {})) == context_trouble::damaged);
}

TEST_CASE("graph B59: a full disk refuses a write, and what was there stays") {
  const context_folder folder;
  const std::string file = folder.file();
  constexpr int refused_as_full = 7;
  // The limit of a process is told as that of a disk is.
  manyworlds_tests::child writer([&] {
    rlimit limit{};
    ::getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = 256 << 10;
    ::setrlimit(RLIMIT_FSIZE, &limit);
    sqlite_context kept(file);
    const std::uint64_t term = context_result(kept.take_term(0));
    context_values expected;
    told_trouble told;
    for (int i = 0; i < 100 && !told.kind; ++i) {
      std::vector<context_write> one;
      one.push_back({std::to_string(i), std::string(8192, 'x')});
      told = context_trouble_of(kept.write(term, one));
      if (!told.kind) expected.emplace(one.front().key, *one.front().value);
    }
    if (!(told == context_trouble::full)) return 1;
    if (context_result(kept.load()) != expected) return 2;
    // What needs no room goes on, and with room all does.
    if (context_result(kept.take_term(term)) != term + 1) return 3;
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_FSIZE, &limit);
    set_context_value(kept, term + 1, "behind", "it");
    expected.emplace("behind", "it");
    return context_result(sqlite_context(file).load()) == expected ? refused_as_full : 4;
  });
  const int status = writer.status();
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == refused_as_full);
}

TEST_CASE("graph B59: a writer that is killed has written what it acknowledged") {
  const context_folder folder;
  const std::string file = folder.file();
  seeded_random random(59);
  std::uint64_t expected = 0;
  for (int round = 0; round < 20; ++round) {
    int told[2] = {};
    REQUIRE(::pipe2(told, O_CLOEXEC) == 0);
    {
      manyworlds_tests::child writer([&] {
        sqlite_context kept(file, {.longest_log = 4096});
        const std::uint64_t term =
            context_result(kept.take_term(context_result(kept.term())));
        for (std::uint64_t n = expected + 1;; ++n) {
          std::vector<context_write> both;
          both.push_back({"n", std::to_string(n)});
          both.push_back({"same", std::string(500, 'x') + std::to_string(n)});
          context_result(kept.write(term, both));
          if (::write(told[1], &n, sizeof n) != sizeof n) return 1;
        }
      });
      ::close(told[1]);
      // It has begun; then it is killed at any point of its writes.
      std::uint64_t first = 0;
      REQUIRE(::read(told[0], &first, sizeof first) == sizeof first);
      expected = std::max(expected, first);
      std::this_thread::sleep_for(random.at_most(3ms));
      writer.signal(SIGKILL);
    }
    std::uint64_t acknowledged = 0;
    while (::read(told[0], &acknowledged, sizeof acknowledged) == sizeof acknowledged)
      expected = acknowledged;
    ::close(told[0]);
    sqlite_context kept(file);
    const context_values all = context_result(kept.load());
    CHECK(context_result(kept.term()) == static_cast<std::uint64_t>(round) + 1);
    const std::uint64_t n = std::stoull(all.at("n"));
    CHECK(n >= expected);
    CHECK(n <= expected + 1);
    CHECK(all.at("same") == std::string(500, 'x') + std::to_string(n));
    expected = n;
  }
}

TEST_CASE("graph B61: the log stays bounded, in bytes and in rows") {
  const context_folder folder;
  const std::string file = folder.file();
  sqlite_context kept(file, {.longest_log = 16 << 10});
  const std::uint64_t term = context_result(kept.take_term(0));
  context_values expected;
  std::uintmax_t largest = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::string key = "k" + std::to_string(i % 20);
    expected[key] = std::string(1000, 'x') + std::to_string(i);
    set_context_value(kept, term, key, expected[key]);
    largest = std::max(largest, std::filesystem::file_size(file));
  }
  // Of 1 MB that was written, 20 KB stand. A log as long as its snapshot and another
  // snapshot lie beside each other at most.
  CHECK(largest < 128 << 10);
  CHECK(std::filesystem::file_size(file + "-journal") < 1100 << 10);
  CHECK(context_result(sqlite_context(file).load()) == expected);
  const sqlite_library library;
  sqlite_database db(library, file, false, 5s);
  sqlite_statement rows(db, "SELECT count(*) FROM log");
  REQUIRE(rows.step());
  CHECK(rows.number(0) <= 25);
}

TEST_CASE("another process that holds the file is waited for, and then it is told") {
  const context_folder folder;
  const std::string file = folder.file();
  sqlite_context kept(file, {.patience = 50ms});
  const std::uint64_t term = context_result(kept.take_term(0));
  set_context_value(kept, term, "a", "1");
  const sqlite_library library;
  {
    sqlite_database other(library, file, false, 5s);
    const sqlite_transaction held(other, sqlite_transaction::kind::writes);
    const told_trouble told = context_trouble_of(kept.write(term, {}));
    CHECK(told == context_trouble::unreachable);
    CHECK(told.text.find("another process holds it") != std::string::npos);
    // Reading goes on beside it.
    CHECK(context_result(kept.load()) == context_values{{"a", "1"}});
  }
  set_context_value(kept, term, "a", "2");
  CHECK(context_result(kept.load()) == context_values{{"a", "2"}});
}

TEST_CASE("what cannot be a context is refused with the file and the reason") {
  const context_folder folder;
  const auto refusal = [](const std::string& file) {
    sqlite_context kept(file);
    return context_trouble_of(kept.term());
  };
  const told_trouble missing = refusal((folder.path() / "no" / "file").string());
  CHECK(missing == context_trouble::unsupported);
  CHECK(missing.text.find("/no/file") != std::string::npos);
  CHECK(refusal(folder.path().string()) == context_trouble::unsupported);
  const std::string text = (folder.path() / "text").string();
  replace_file(text, std::string(5000, 't'));
  const told_trouble no_database = refusal(text);
  CHECK(no_database == context_trouble::damaged);
  CHECK(no_database.text.find(text) != std::string::npos);
  // A database of another kind.
  const std::string other = (folder.path() / "other").string();
  {
    const sqlite_library library;
    sqlite_database db(library, other, true, 5s);
    db.execute("CREATE TABLE songs(name)");
  }
  CHECK(refusal(other) == context_trouble::damaged);
}

TEST_CASE("makers of one file at once make one, for its owner alone") {
  const context_folder folder;
  const std::string file = folder.file();
  std::vector<std::thread> makers;
  std::atomic<int> taken = 0;
  std::atomic<int> deposed = 0;
  for (int i = 0; i < 4; ++i) {
    makers.emplace_back([&] {
      sqlite_context kept(file);
      const told_trouble told = context_trouble_of(kept.take_term(0));
      if (!told.kind) ++taken;
      if (told == context_trouble::deposed) ++deposed;
    });
  }
  for (std::thread& each : makers) each.join();
  CHECK(taken == 1);
  CHECK(deposed == 3);
  struct stat seen {};
  REQUIRE(::stat(file.c_str(), &seen) == 0);
  CHECK((seen.st_mode & 0777) == 0600);
  CHECK_FALSE(std::filesystem::exists(file + ".draft"));
  // One that was killed while it made a file leaves a draft, which the next one takes.
  const std::string second = (folder.path() / "second").string();
  replace_file(second + ".draft", "");
  sqlite_context kept(second);
  CHECK(context_result(kept.take_term(0)) == 1);
  CHECK_FALSE(std::filesystem::exists(second + ".draft"));
}

TEST_SUITE_END();
