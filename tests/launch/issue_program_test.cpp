// The program by which the issue describes the interface, word for word.
#include "process_fixture.hpp"

namespace issue_program {

using namespace std::chrono_literals;
namespace mw = manyworlds;

// clang-format off
mw::task<void> run_engine(mw::runtime& rt) {
  mw::process_options how("./engine", {"--port", "0"});
  how.set("CUDA_VISIBLE_DEVICES", "0").open_files(4096).output(mw::to_file("engine.log"));
  mw::supervised_process engine(rt, how);
  co_await engine.started();                     // or: cannot execute "./engine": permission denied
  const mw::exit_reason end = co_await engine.ended().within(1h);
  if (end.kind == mw::exit_kind::out_of_memory) co_return;
  co_await engine.stop(mw::grace(10s));          // SIGTERM to the tree, then SIGKILL; ends when all of it has
}
// clang-format on

}  // namespace issue_program

namespace manyworlds::launch_tests {

TEST_SUITE_BEGIN("launch");

TEST_CASE("V1 the issue's program runs an engine, and says why it cannot") {
  node n;
  const own_folder here;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(here.path());
  const std::string engine = here.file("engine");
  std::ofstream(engine) << "#!/bin/sh\necho \"$CUDA_VISIBLE_DEVICES $*\"; ulimit -n\n";
  std::filesystem::permissions(engine, static_cast<std::filesystem::perms>(0644));
  std::string refused;
  try {
    n.run(issue_program::run_engine(n.rt));
  } catch (const process_error& e) {
    refused = e.what();
  }
  CHECK(refused == "cannot execute \"./engine\": permission denied");
  std::filesystem::permissions(engine, static_cast<std::filesystem::perms>(0755));
  n.run(issue_program::run_engine(n.rt));
  std::filesystem::current_path(before);
  CHECK(content_of(here.file("engine.log")) == "0 --port 0\n4096\n");
}

TEST_SUITE_END();

}  // namespace manyworlds::launch_tests
