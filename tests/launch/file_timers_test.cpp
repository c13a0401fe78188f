// PyTorch's file timers: which lines are read, and which processes are told of (L41).
#include "launch/file_timers.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "manyworlds/coro/when_all.hpp"
#include "process_fixture.hpp"

#if __has_include(<nlohmann/json.hpp>)

namespace manyworlds::launch_tests {

using namespace manyworlds::detail;

namespace {

std::string timer_line(const std::string& pid, const std::string& expires,
                       const std::string& signal = "9") {
  return R"({"version": 1, "pid": )" + pid + R"(, "scope_id": "s", "expiration_time": )" +
         expires + R"(, "signal": )" + signal + "}";
}

/// What the server tells within a time.
struct served {
  explicit served(const std::string& path = "")
      : timers(access::core(at.rt).user(), path, [this](const file_timer_line& line) {
          told.push_back(line.scope + " " + std::to_string(line.pid));
        }) {}

  void write(const std::string& text) const {
    const unique_descriptor to(
        ::open(timers.path().c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
    REQUIRE(to);
    REQUIRE(::write(to.get(), text.data(), text.size()) ==
            static_cast<ssize_t>(text.size()));
  }
  std::vector<std::string> after(duration time) {
    auto running = [&]() -> task<void> {
      co_await when_any(timers.run(), sleep_for(time));
    };
    at.run(running());
    return told;
  }

  node at;
  std::vector<std::string> told;
  file_timers timers;
};

}  // namespace

TEST_SUITE_BEGIN("launch");

TEST_CASE("L41: the lines of PyTorch's client are read, and no others") {
  const auto read = read_file_timer(timer_line("17", "1700000000.25"));
  REQUIRE(read);
  CHECK(read->pid == 17);
  CHECK(read->scope == "s");
  CHECK(read->expires == 1700000000.25);
  CHECK(read->signal == 9);
  CHECK(read_file_timer(timer_line("17", "-1", "0"))->expires < 0);
  const std::vector<std::string> all_odd{
      std::string(),
      std::string("{"),
      std::string("[]"),
      std::string("{}"),
      timer_line("0", "1"),
      timer_line("-1", "1"),
      timer_line("1e99", "1"),
      timer_line("\"17\"", "1"),
      timer_line("99999999999", "1"),
      timer_line("17", "\"x\""),
      timer_line("17", "1e999"),
      timer_line("17", "1", "1000"),
      timer_line("17", "1", "9.5"),
      R"({"version": 2, "pid": 1, "scope_id": "s", "expiration_time": 1, "signal": 9})",
      timer_line("17", "1") + std::string(5000, ' '),
      std::string(4000, '[') + std::string(90, ']')};
  for (const std::string& odd : all_odd) {
    CAPTURE(odd);
    CHECK_FALSE(read_file_timer(odd));
  }
}

TEST_CASE("L41: a timer is told of once it has expired, unless it was let go") {
  served s;
  s.write(timer_line("17", "1") + "\n" + "no line\n" + timer_line("18", "9e9") + "\n");
  s.write(timer_line("19", "9e9") + "\n");
  s.write(timer_line("19", "-1") + "\n");
  CHECK(s.after(300ms) == std::vector<std::string>{"s 17"});
}

TEST_CASE("L41: a timer that was let go while its server was held up is not told of") {
  served s;
  const auto due = std::chrono::system_clock::now() + 300ms;
  const std::chrono::duration<double> at = due.time_since_epoch();
  s.write(timer_line("17", std::to_string(at.count())) + "\n");
  auto held_up = [&]() -> task<void> {
    co_await sleep_for(100ms);
    // What lets go of it is behind more than is read at once.
    for (int i = 0; i < 3; ++i) s.write(std::string(4000, ' ') + "\n");
    s.write(timer_line("17", "-1") + "\n");
    std::this_thread::sleep_for(500ms);
  };
  auto running = [&]() -> task<void> {
    co_await when_any(s.timers.run(), when_all(held_up(), sleep_for(1s)));
  };
  s.at.run(running());
  CHECK(s.told.empty());
}

TEST_CASE("L41: bytes without an end of a line are not kept without a limit") {
  served s;
  for (int i = 0; i < 8; ++i) s.write(std::string(4096, 'x'));
  CHECK(s.after(200ms).empty());
  s.write("\n" + timer_line("17", "1") + "\n");
  CHECK(s.after(300ms) == std::vector<std::string>{"s 17"});
}

TEST_CASE("L41: the pipe is this user's, and goes with its server") {
  std::string path;
  {
    const served s;
    path = s.timers.path();
    struct stat what {};
    REQUIRE(::stat(path.c_str(), &what) == 0);
    CHECK(S_ISFIFO(what.st_mode));
    CHECK((what.st_mode & 0777) == 0600);
  }
  CHECK(!std::filesystem::exists(std::filesystem::path(path).parent_path()));
}

TEST_CASE("L41: a pipe that is there is replaced, and a file is not") {
  const own_folder folder;
  const std::string path = folder.file("timers");
  REQUIRE(::mkfifo(path.c_str(), 0644) == 0);
  {
    const served s(path);
    {
      const served other(path);
      CHECK(other.timers.path() == path);
    }
    CHECK(!std::filesystem::exists(path));
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  }
  CHECK_MESSAGE(std::filesystem::remove(path), "the pipe of another server stays");
  std::ofstream(path) << "kept";
  node n;
  CHECK_THROWS_AS(file_timers(access::core(n.rt).user(), path, {}), std::system_error);
  CHECK(content_of(path) == "kept");
}

TEST_SUITE_END();

}  // namespace manyworlds::launch_tests

#endif
