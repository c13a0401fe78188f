// Exit reason: each kind has a sentence that names the program and the cause.
#include "manyworlds/launch/exit_reason.hpp"

#include <doctest/doctest.h>
#include <signal.h>

#include <cerrno>
#include <string>

namespace manyworlds::launch_tests {

using namespace std::chrono_literals;

TEST_SUITE_BEGIN("launch");

namespace {

exit_reason reason(exit_kind kind) {
  exit_reason r;
  r.kind = kind;
  r.program = "./engine";
  r.pid = 7;
  r.ran_for = 1500ms;
  return r;
}

}  // namespace

TEST_CASE(
    "V1 the sentence of a start that failed names program, step, object and errno") {
  exit_reason r = reason(exit_kind::not_started);
  r.step = start_step::execute;
  r.error = EACCES;
  CHECK(r.text() == "cannot execute \"./engine\": permission denied");
  r.step = start_step::folder;
  r.error = ENOENT;
  r.object = "/nowhere";
  CHECK(r.text() ==
        "cannot start \"./engine\", since it cannot enter its working folder (/nowhere): "
        "no such file or directory");
  r.error = EIO;
  CHECK(r.text().ends_with(": input/output error"));
}

TEST_CASE("V2 each way to end has its own sentence") {
  exit_reason r = reason(exit_kind::exited);
  r.code = 3;
  CHECK(r.text() == "\"./engine\" (pid 7) exited with code 3 after 1.5 s");
  CHECK_FALSE(r.is_success());
  r = reason(exit_kind::signaled);
  r.signal = SIGSEGV;
  r.core_dumped = true;
  CHECK(
      r.text() ==
      "\"./engine\" (pid 7) was ended by SIGSEGV and left a core dump after 1.5 s, which "
      "was not sent from here");
  r = reason(exit_kind::stopped);
  r.stop = stop_step::asked;
  CHECK(r.text() ==
        "\"./engine\" (pid 7) was stopped by SIGTERM after 1.5 s and exited with code 0");
  CHECK_FALSE(r.is_success());
  r.stop = stop_step::killed;
  CHECK(r.text() == "\"./engine\" (pid 7) was stopped by SIGKILL after 1.5 s");
  CHECK(reason(exit_kind::out_of_memory).text().find("memory") != std::string::npos);
  CHECK(reason(exit_kind::reaped_elsewhere).text().find("SIGCHLD") != std::string::npos);
}

TEST_SUITE_END();

}  // namespace manyworlds::launch_tests
