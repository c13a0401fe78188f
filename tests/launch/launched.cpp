// A member of a job, for tests of real launchers: it joins the world of all, does what
// its first argument says, and prints what it is.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <manyworlds/launch.hpp>
#include <manyworlds/mw.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

using namespace std::chrono_literals;

namespace {

/// What a test wants of the member.
struct order {
  std::string what = "sum";
  mw::rank_t rank = 0;
  std::string path;  ///< what the test serves slowly: a FIFO, or one for each operation
};

mw::task<void> add_up(mw::world& w, const mw::launch_context& job) {
  int total = w.rank() + 1;
  co_await w.all_reduce(std::span(&total, 1), mw::sum);
  std::printf("rank %d of %d, local %d of %d, node %d of %d, %s: the sum is %d\n",
              w.rank(), w.size(), job.local_rank, job.local_size, job.node_rank,
              job.node_count, std::string(name_of(job.launcher)).c_str(), total);
  co_await w.barrier();
}

/// Holds all threads of that process but the first, until it ends.
[[noreturn]] void hold_threads(pid_t of) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const std::string threads = "/proc/" + std::to_string(of) + "/task";
  for (const auto& each : std::filesystem::directory_iterator(threads)) {
    const pid_t thread = std::atoi(each.path().filename().c_str());
    if (thread == of) continue;
    if (::ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) != 0 ||
        ::ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr) != 0)
      std::perror("ptrace");
  }
  for (;;) ::pause();
}

/// Sends nothing more, as a process that is not stopped: its service thread is held.
[[noreturn]] void fall_silent() {
  ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
  const pid_t self = ::getpid();
  if (::fork() == 0) hold_threads(self);
  for (;;) ::pause();
}

/// Does what a member does that is stuck, and never ends.
mw::task<void> get_stuck(const mw::launch_context& job, const std::string& how) {
  std::printf("rank %d %s\n", job.rank, how.c_str());
  if (how == "loops") {
    for (volatile bool goes_on = true; goes_on;) continue;
  }
  if (how == "blocks") ::pause();
  if (how == "stands-still") job.progress(1);
  if (how == "falls-silent") fall_silent();
  const auto at_most = job.expires(how == "overruns" ? 200ms : 1h, "a step");
  co_await mw::sleep_for(1h);
}

constexpr int slow_operations = 8;

/// Waits as the kernel makes a process wait for a disk, in uninterruptible sleep, until
/// the test opens the other end: the child that opens the FIFO shares our memory.
void wait_for_the_disk(const std::string& fifo) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 0, fifo.c_str(), O_RDONLY, 0);
  char name[] = "true";
  char* const words[] = {name, nullptr};
  pid_t child = 0;
  if (::posix_spawn(&child, "/bin/true", &actions, nullptr, words, environ) != 0)
    throw std::runtime_error("no child");
  ::posix_spawn_file_actions_destroy(&actions);
  ::waitpid(child, nullptr, 0);
}

/// Writes more than the pipe holds, which the test reads slowly, and a file to the disk.
void write_slowly(const order& o, int pipe) {
  const std::string piece(1 << 16, 'x');
  if (::write(pipe, piece.data(), piece.size()) != std::ssize(piece))
    throw std::runtime_error("the pipe took no piece");
  const int file =
      ::open((o.path + ".file").c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
  for (int i = 0; i < 64; ++i) {
    if (::write(file, piece.data(), piece.size()) < 0)
      throw std::runtime_error("the file took no piece");
  }
  ::fsync(file);
  ::close(file);
}

/// Uses a slow disk: each operation ends, and what is between two of them differs.
mw::task<void> use_slow_disk(const mw::launch_context& job, const order& o) {
  std::printf("rank %d %s\n", job.rank, o.what.c_str());
  const int pipe = o.what == "writes" ? ::open(o.path.c_str(), O_WRONLY | O_CLOEXEC) : -1;
  for (int i = 0; i < slow_operations; ++i) {
    if (pipe < 0) {
      // The reactor has no turn before the last has ended.
      wait_for_the_disk(o.path + std::to_string(i));
      continue;
    }
    write_slowly(o, pipe);
    job.progress(static_cast<std::uint64_t>(i));
    co_await mw::sleep_for(1ms);
  }
  if (pipe >= 0) ::close(pipe);
  std::printf("rank %d has written\n", job.rank);
}

mw::task<void> take_step(mw::world& w) {
  int total = 1;
  co_await w.all_reduce(std::span(&total, 1), mw::sum);
}

/// Meets the others all the time. In its first life a member that is meant gets stuck.
mw::task<void> meet(mw::world& w, const mw::launch_context& job, const order& o) {
  const bool is_meant = w.rank() == o.rank && job.incarnation == 1;
  if (o.what == "writes" || o.what == "waits-for-disk") {
    if (is_meant) co_await use_slow_disk(job, o);
  } else if (is_meant && o.what != "meets" && o.what != "dies-again") {
    // All are in the world then: they accuse what no longer sends.
    if (o.what == "falls-silent") co_await take_step(w);
    co_await get_stuck(job, o.what);
  }
  for (std::uint64_t step = 0;; ++step) {
    co_await take_step(w);
    job.progress(step);
    co_await mw::sleep_for(20ms);
  }
}

void report(const mw::launch_context& job) {
  const mw::job_timer timed = job.timed("all of it");
  job.event("begins", {{"how", "well"}});
  job.metric("tokens", 2.5);
}

/// Dies with the world up in the first attempt, as a member of a real job would.
mw::task<void> take_part(mw::world& w, const mw::launch_context& job, const order& o) {
  const bool is_meant = w.rank() == o.rank;
  for (const char* each : {"meets", "loops", "blocks", "stands-still", "falls-silent",
                           "overruns", "dies-again", "writes", "waits-for-disk"}) {
    if (o.what == each) co_await meet(w, job, o);
  }
  if (o.what == "die-once" && is_meant && job.attempt == 0) ::kill(::getpid(), SIGKILL);
  if (o.what == "throw" && is_meant)
    throw std::runtime_error("the model cannot be loaded");
  if (o.what == "reports") report(job);
  if (o.what == "asks" && is_meant && job.attempt == 0) {
    job.request_restart("its cache is gone");
    co_await mw::sleep_for(60s);
  }
  co_await add_up(w, job);
  if (o.what == "wait" || o.what == "stays-away") {
    std::printf("rank %d waits\n", w.rank());
    co_await mw::sleep_for(60s);
  }
}

/// Meets a program of PyTorch, which does the same, at the job's store.
mw::task<void> share_store(mw::runtime& rt, const mw::launch_context& job) {
  mw::tcp_store st(rt, job.store);
  co_await st.set("from_cpp", "b");
  const std::string theirs = co_await st.get("from_python", 20s);
  co_await st.add("count", 3);
  co_await st.wait({"python_is_done"}, 20s);
  const std::int64_t count = co_await st.add("count", 0);
  std::printf("C++ has %s %d\n", theirs.c_str(), static_cast<int>(count));
}

}  // namespace

int main(int count, char** words) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  order o;
  if (count > 1) o.what = words[1];
  if (count > 2) o.rank = std::atoi(words[2]);
  if (count > 3) o.path = words[3];
  const auto job = mw::launch_context::from_environment();
  // A replacement that lives and does not join.
  if (o.what == "dies-again" && job.incarnation == 2) return 9;
  if (o.what == "stays-away" && job.incarnation > 1) ::pause();
  if (o.what == "die-early" && job.rank == o.rank && job.attempt == 0)
    ::kill(::getpid(), SIGKILL);
  mw::runtime rt(job.runtime());
  if (o.what == "shares-store") return job.run(rt, share_store(rt, job));
  mw::launch_store store(rt, job);
  const auto body = [&](mw::world& w) { return take_part(w, job, o); };
  mw::job_options options;
  if (o.what == "wait" && o.rank > 0) options.code_of_signal = o.rank;
  if (o.what == "fail-at-once" && job.rank == o.rank) return 9;
  return job.run(rt, mw::keep(rt, store, job.world("main"), body), options);
}
