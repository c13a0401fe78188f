// Running a job's task: the exit code, and the error file that an agent reads.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "manyworlds/launch/launch_context.hpp"

namespace manyworlds::launch_tests {

TEST_SUITE_BEGIN("launch");

namespace {

/// A folder for the error file of one job.
class error_folder {
 public:
  error_folder() {
    REQUIRE(::mkdtemp(folder_.data()) != nullptr);
    job.error_file = folder_ + "/error.json";
    job.run_id = "run";
  }
  error_folder(const error_folder&) = delete;
  error_folder& operator=(const error_folder&) = delete;
  ~error_folder() { std::filesystem::remove_all(folder_); }

  [[nodiscard]] nlohmann::json read() const {
    std::ifstream in(job.error_file);
    REQUIRE(in.good());
    return nlohmann::json::parse(in);
  }
  [[nodiscard]] bool is_written() const {
    return std::filesystem::exists(job.error_file);
  }
  [[nodiscard]] std::ptrdiff_t files() const {
    return std::distance(std::filesystem::directory_iterator(folder_), {});
  }

  launch_context job;

 private:
  std::string folder_ = "/tmp/mw-error-XXXXXX";
};

task<void> nothing() { co_return; }
task<int> give(int code) { co_return code; }
task<void> fail_deeply() {
  try {
    throw std::out_of_range("layer 7 is not there");
  } catch (...) {
    std::throw_with_nested(std::runtime_error("the model cannot be loaded"));
  }
  co_return;
}

}  // namespace

TEST_CASE("the exit code is that of the task, and 0 of one that gives none") {
  const error_folder at;
  const auto code_of = [&](auto work) {
    runtime rt;
    return at.job.run(rt, std::move(work));
  };
  CHECK(code_of(nothing()) == 0);
  CHECK(code_of(give(0)) == 0);
  CHECK(code_of(give(7)) == 7);
  CHECK_FALSE(at.is_written());
}

TEST_CASE("an exception gives its code and the error file that torchrun reads") {
  const error_folder at;
  runtime rt;
  job_options options;
  options.code_of_error = 3;
  CHECK(at.job.run(rt, fail_deeply(), options) == 3);
  CHECK(rt.is_stopping());
  const auto message = at.read().at("message");
  CHECK(message.at("message").get<std::string>().find(
            "std::runtime_error>: the model cannot be loaded") != std::string::npos);
  CHECK(message.at("errorCode") == 3);
  const auto info = message.at("extraInfo");
  const std::string stack = info.at("py_callstack");
  CHECK(stack.find("rank 0 of 1 (none, run run)") != std::string::npos);
  CHECK(stack.find("std::out_of_range: layer 7 is not there") != std::string::npos);
  // A number of seconds as a text.
  CHECK(std::stoll(info.at("timestamp").get<std::string>()) > 1'700'000'000);
}

TEST_CASE("an error without a code has the short form, with a number for the time") {
  const error_folder at;
  CHECK(at.job.record_error("no \"quotes\", no\nlines \x01 and no \xff bytes are lost"));
  const auto all = at.read();
  CHECK(all.at("message") ==
        "no \"quotes\", no\nlines \x01 and no \xef\xbf\xbd bytes are lost");
  CHECK(all.at("timestamp").get<std::int64_t>() > 1'700'000'000);
  CHECK(all.size() == 2);
}

TEST_CASE("an error file is replaced whole, and leaves nothing beside it") {
  const error_folder at;
  CHECK(at.job.record_error("first", 1, std::string(3'000'000, 'x')));
  CHECK(at.read()
            .at("message")
            .at("extraInfo")
            .at("py_callstack")
            .get<std::string>()
            .size() == 1024 * 1024);
  CHECK(at.job.record_error(std::string(100'000, 'y'), 2));
  CHECK(at.read().at("message").at("message").get<std::string>().size() == 64 * 1024);
  CHECK(at.files() == 1);
}

TEST_CASE("an error file that is a pipe or a device is written, and stays what it is") {
  const error_folder at;
  REQUIRE(::mkfifo(at.job.error_file.c_str(), 0600) == 0);
  CHECK_FALSE(at.job.record_error("there is no reader"));
  const int reader = ::open(at.job.error_file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  REQUIRE(reader >= 0);
  CHECK(at.job.record_error("there is one"));
  char got[256];
  const ssize_t size = ::read(reader, got, sizeof got);
  ::close(reader);
  REQUIRE(size > 0);
  CHECK(nlohmann::json::parse(std::string_view(got, static_cast<std::size_t>(size)))
            .at("message") == "there is one");
  CHECK(std::filesystem::is_fifo(at.job.error_file));
  CHECK(at.files() == 1);
}

TEST_CASE("an error file that cannot be written is no second error") {
  error_folder at;
  at.job.error_file = "/no/such/folder/error.json";
  CHECK_FALSE(at.job.record_error("text"));
  runtime rt;
  CHECK(at.job.run(rt, fail_deeply()) == 1);
  at.job.error_file.clear();
  CHECK(at.job.record_error("there is no agent"));
}

TEST_CASE("a thread that does not block the signals leaves them alone") {
  const error_folder at;
  std::atomic<bool> is_open{false};
  std::atomic<bool> may_end{false};
  std::thread other([&] {
    sigset_t none;
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, nullptr);
    is_open = true;
    while (!may_end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  while (!is_open) std::this_thread::yield();
  runtime rt;
  CHECK(at.job.run(rt, give(5)) == 5);
  may_end = true;
  other.join();
}

TEST_SUITE_END();

}  // namespace manyworlds::launch_tests
