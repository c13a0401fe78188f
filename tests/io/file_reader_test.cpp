// Files: read by ranges on each engine, and what is told when that fails.
#include "manyworlds/io/file_reader.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <vector>

#include "io/reactor_fixture.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/stop.hpp"
#include "manyworlds/coro/sync_wait.hpp"
#include "manyworlds/coro/when_all.hpp"
#include "manyworlds/coro/within.hpp"
#include "simulation/simulated_node.hpp"
#include "support/pattern.hpp"

using namespace manyworlds;
using namespace manyworlds::testing;

TEST_SUITE_BEGIN("file reader");

namespace {

/// A file of bytes that tell their place, until the end of the case.
class named_file {
 public:
  explicit named_file(std::size_t size) : bytes_(pattern(size)) {
    char name[] = "/tmp/mw-file-XXXXXX";
    const int fd = ::mkstemp(name);
    REQUIRE(fd >= 0);
    path_ = name;
    const bool is_written =
        ::write(fd, bytes_.data(), size) == static_cast<ssize_t>(size);
    ::close(fd);
    if (!is_written) ::unlink(name);
    REQUIRE(is_written);
  }
  named_file(const named_file&) = delete;
  named_file& operator=(const named_file&) = delete;
  ~named_file() { ::unlink(path_.c_str()); }

  const std::string& path() const { return path_; }
  bool has(const std::vector<std::byte>& memory, std::size_t offset) const {
    return std::memcmp(memory.data(), bytes_.data() + offset, memory.size()) == 0;
  }

 private:
  std::vector<std::uint8_t> bytes_;
  std::string path_;
};

task<std::string> refusal(const file_reader& file, std::uint64_t offset,
                          std::vector<std::byte>& into) {
  std::string text;
  try {
    co_await file.read_at(offset, into);
  } catch (const file_error& e) {
    text = e.what();
  }
  co_return text;
}

std::string refusal_to_open(const std::string& path, std::error_code& code) {
  try {
    const file_reader file(path);
  } catch (const file_error& e) {
    code = e.failure().code;
    return e.what();
  }
  return "";
}

task<void> read_parts(const file_reader& file, std::vector<std::vector<std::byte>>& parts,
                      std::size_t step) {
  std::vector<task<void>> reads;
  for (std::size_t i = 0; i < parts.size(); ++i)
    reads.push_back(file.read_at(i * step, parts[i]));
  co_await when_all(std::move(reads));
}

}  // namespace

TEST_CASE("a range of a file is read whole, however long, and several at once") {
  const named_file kept((5 << 20) + 3);
  FOR_EVERY_ENGINE(kind) {
    reactor_fixture f(kind);
    const file_reader file(kept.path());
    CHECK(file.size() == (5 << 20) + 3);
    CHECK(file.path() == kept.path());
    std::vector<std::byte> all(file.size());
    f.run(file.read_at(0, all));
    CHECK(kept.has(all, 0));
    std::vector<std::byte> rest(4097);
    f.run(file.read_at(file.size() - rest.size(), rest));
    CHECK(kept.has(rest, file.size() - rest.size()));
    f.run(file.read_at(file.size(), std::span<std::byte>()));
    std::vector<std::vector<std::byte>> parts(40, std::vector<std::byte>(70'000));
    f.run(read_parts(file, parts, 99'991));
    for (std::size_t i = 0; i < parts.size(); ++i) CHECK(kept.has(parts[i], i * 99'991));
  }
}

TEST_CASE("an error names the file, the range and the cause") {
  const named_file kept(1000);
  FOR_EVERY_ENGINE(kind) {
    reactor_fixture f(kind);
    const file_reader file(kept.path());
    std::vector<std::byte> bytes(100);
    CHECK(f.run(refusal(file, 901, bytes)) ==
          kept.path() +
              ": cannot read 100 bytes from byte 901: the file ends at byte "
              "1000");
    CHECK(f.run(refusal(file, 900, bytes)) == "");
    CHECK(kept.has(bytes, 900));
    const std::uint64_t beyond = std::numeric_limits<std::uint64_t>::max();
    CHECK(f.run(refusal(file, beyond, bytes)) ==
          kept.path() +
              ": cannot read 100 bytes from byte 18446744073709551615: the file "
              "ends at byte 1000");
    // It has become shorter since it was opened.
    std::filesystem::resize_file(kept.path(), 950);
    CHECK(f.run(refusal(file, 900, bytes)) ==
          kept.path() +
              ": cannot read 100 bytes from byte 900: the file ends at byte 950");
    CHECK(file.size() == 1000);
    std::filesystem::resize_file(kept.path(), 1000);
    std::ofstream(kept.path(), std::ios::binary | std::ios::in)
        .write(reinterpret_cast<const char*>(pattern(1000).data()), 1000);
  }
}

TEST_CASE("what is no file is not opened, and no pipe's writer is waited for") {
  std::error_code code;
  CHECK(refusal_to_open("/nonexistent/file", code) ==
        "/nonexistent/file: cannot be opened: No such file or directory");
  CHECK(code == std::errc::no_such_file_or_directory);
  CHECK(refusal_to_open("/tmp", code) == "/tmp: cannot be opened: it is no regular file");
  CHECK(!code);
  const named_file kept(1);
  const std::string pipe = kept.path() + ".pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(refusal_to_open(pipe, code) ==
        pipe + ": cannot be opened: it is no regular file");
  ::unlink(pipe.c_str());
}

TEST_CASE(
    "a read heeds a deadline and a stop, and ends before its memory is the owner's") {
  const named_file kept(8 << 20);
  FOR_EVERY_ENGINE(kind) {
    reactor_fixture f(kind);
    const file_reader file(kept.path());
    std::vector<std::byte> all(file.size());
    std::stop_source stop;
    stop.request_stop();
    const auto stopping = [](const file_reader& from, std::span<std::byte> into,
                             std::stop_token token) -> task<bool> {
      bool was_stopped = false;
      try {
        co_await stop_on(from.read_at(0, into), std::move(token));
      } catch (const stopped&) {
        was_stopped = true;
      }
      co_return was_stopped;
    };
    CHECK(f.run(stopping(file, all, stop.get_token())));
    for (const int turns : {0, 1, 2, 3, 5, 8}) {
      running<void> reads(f, file.read_at(0, all));
      for (int n = 0; n < turns; ++n) f.get().turn();
      reads.cancel();
      f.run_until([&] { return reads.ended(); });
      // One MiB ends in a turn at most, and it has eight.
      if (turns < 8) CHECK(reads.cancelled());
      std::fill(all.begin(), all.end(), std::byte{0x5a});
      for (int n = 0; n < 8; ++n) f.get().turn();
      CHECK(std::count(all.begin(), all.end(), std::byte{0x5a}) ==
            static_cast<std::ptrdiff_t>(all.size()));
    }
    f.run([](const file_reader& from, std::span<std::byte> into) -> task<void> {
      co_await within(from.read_at(0, into), 20s);
    }(file, all));
    CHECK(kept.has(all, 0));
  }
}

TEST_CASE("a reader that was moved reads on, and one that was not opened is not") {
  const named_file first(100);
  const named_file second(200);
  reactor_fixture f(engine_kind::epoll);
  file_reader one(first.path());
  file_reader two(second.path());
  std::swap(one, two);
  CHECK(one.size() == 200);
  const file_reader moved(std::move(one));
  std::vector<std::byte> all(200);
  f.run(moved.read_at(0, all));
  CHECK(second.has(all, 0));
  std::string said;
  try {
    sync_wait(moved.read_at(0, all));
  } catch (const std::logic_error& e) {
    said = e.what();
  }
  CHECK(said.starts_with("file_reader needs a task on the reactor of a runtime"));
}

TEST_CASE("a simulation reads real files, in an order and in pieces of its seed") {
  const named_file kept(300'000);
  const auto run = [&](std::uint64_t seed) {
    simulation sim(seed);
    const file_reader file(kept.path());
    std::vector<std::vector<std::byte>> parts(8, std::vector<std::byte>(50'000));
    manyworlds_tests::simulated_node node(sim, "reader");
    node.spawn(read_parts(file, parts, 31'000));
    REQUIRE(sim.run_until([&] { return node.has_ended(); }));
    for (std::size_t i = 0; i < parts.size(); ++i) CHECK(kept.has(parts[i], i * 31'000));
    return sim.fingerprint();
  };
  const std::uint64_t one = run(1);
  CHECK(run(1) == one);
  CHECK(run(2) != one);
}

TEST_SUITE_END();
