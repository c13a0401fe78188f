#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <manyworlds/launch.hpp>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "questions.hpp"
#include "timing.hpp"

namespace mwbench {

namespace {

/// Microseconds of one start.
struct start_times {
  double to_first = 0;   ///< from the call to the program's first instruction
  double to_waiter = 0;  ///< from the program's last instruction to its waiter
};

[[noreturn]] void fail(const char* call, int error) {
  throw std::system_error(error, std::generic_category(), call);
}

/// The program says here when it ran.
class stamps_pipe {
 public:
  stamps_pipe() {
    if (::pipe2(ends_.data(), O_CLOEXEC) != 0) fail("pipe", errno);
  }
  stamps_pipe(const stamps_pipe&) = delete;
  stamps_pipe& operator=(const stamps_pipe&) = delete;
  ~stamps_pipe() {
    for (const int each : ends_) ::close(each);
  }
  [[nodiscard]] int given() const { return ends_[1]; }

  [[nodiscard]] start_times times(std::int64_t called, std::int64_t told) const {
    std::int64_t ran[2]{};
    if (::read(ends_[0], ran, sizeof ran) != sizeof ran)
      throw std::runtime_error("the started program said nothing");
    return {static_cast<double>(ran[0] - called) / 1e3,
            static_cast<double>(told - ran[1]) / 1e3};
  }

 private:
  std::array<int, 2> ends_{};
};

mw::task<start_times> start_supervised(mw::runtime& rt, const std::string& program,
                                       const stamps_pipe& pipe) {
  mw::process_options how(program);
  how.pass(pipe.given(), 3);
  mw::supervised_process one(rt, how);
  const auto called = now_ns();
  co_await one.started();
  const mw::exit_reason end = co_await one.ended();
  const auto told = now_ns();
  if (!end.is_success()) throw std::runtime_error(end.text());
  co_await one.stop();
  co_return pipe.times(called, told);
}

start_times wait_for(pid_t child, std::int64_t called, const stamps_pipe& pipe) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) fail("waitpid", errno);
  }
  return pipe.times(called, now_ns());
}

// All give the program a session of its own: under load the kernel's autogroups let a new
// session wait for its turn.

start_times start_by_spawn(const std::string& program, const stamps_pipe& pipe) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, pipe.given(), 3);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  std::string name = program;
  char* const arguments[] = {name.data(), nullptr};
  pid_t child = 0;
  const auto called = now_ns();
  const int error =
      ::posix_spawn(&child, program.c_str(), &actions, &attributes, arguments, ::environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) fail("posix_spawn", error);
  return wait_for(child, called, pipe);
}

start_times start_by_fork(const std::string& program, const stamps_pipe& pipe) {
  std::string name = program;
  char* const arguments[] = {name.data(), nullptr};
  const auto called = now_ns();
  const pid_t child = ::fork();
  if (child < 0) fail("fork", errno);
  if (child == 0) {
    ::setsid();
    ::dup2(pipe.given(), 3);
    ::execv(name.c_str(), arguments);
    ::_exit(127);
  }
  return wait_for(child, called, pipe);
}

struct contestant {
  const char* name;
  samples to_first;
  samples to_waiter;
  void add(const start_times& t) {
    to_first.add(t.to_first);
    to_waiter.add(t.to_waiter);
  }
};

void tell(report& out, int megabytes, const char* what, const samples& ours,
          const contestant& other, const samples& theirs) {
  out.row({
      {"bench", "process"},
      {"what", what},
      {"touched_mib", megabytes},
      {"us", ours.median()},
      {"p99_us", ours.p99()},
      {"spread", ours.spread()},
      {"beside", other.name},
      {"beside_us", theirs.median()},
      {"ratio", rounded(ours.median() / theirs.median())},
  });
}

/// Memory of this process, which a fork has to copy the tables of.
void touch(int megabytes) {
  const std::size_t size = static_cast<std::size_t>(megabytes) << 20;
  if (size == 0) return;
  void* const at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) fail("mmap", errno);
  ::madvise(at, size, MADV_NOHUGEPAGE);
  for (std::size_t i = 0; i < size; i += 4096) static_cast<volatile char*>(at)[i] = 1;
}

}  // namespace

void process(const common_options& common, const process_options& options) {
  const std::string program =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "mwbench-first";
  if (::access(program.c_str(), X_OK) != 0)
    throw std::runtime_error("there is no " + program + " beside mwbench");
  report out(common.json, common.transport());
  mw::runtime rt(runtime_options_of(common));
  out.machine(rt.engine());
  touch(options.megabytes);
  samples to_first, to_waiter;
  contestant others[] = {{"posix_spawn", {}, {}}, {"fork, exec, waitpid", {}, {}}};
  for (int i = 0; i <= options.repeat; ++i) {
    out.progress("start " + std::to_string(i));
    const stamps_pipe pipe;
    const start_times ours = rt.run(start_supervised(rt, program, pipe));
    const start_times spawned = start_by_spawn(program, pipe);
    const start_times forked = start_by_fork(program, pipe);
    // The first one warms up.
    if (i == 0) continue;
    to_first.add(ours.to_first);
    to_waiter.add(ours.to_waiter);
    others[0].add(spawned);
    others[1].add(forked);
  }
  for (const contestant& each : others) {
    tell(out, options.megabytes, "start to first instruction", to_first, each,
         each.to_first);
    tell(out, options.megabytes, "end to waiter", to_waiter, each, each.to_waiter);
  }
}

}  // namespace mwbench
