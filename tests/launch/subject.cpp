// A program to be started and watched. Its arguments are orders, done one after the
// other; it links no library, so that what it has is what its starter gave.
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

void die_by(int number) {
  rlimit core{};
  getrlimit(RLIMIT_CORE, &core);
  signal(number, SIG_DFL);
  raise(number);
}

void print_descriptors() {
  std::vector<int> open;
  DIR* const folder = opendir("/proc/self/fd");
  while (const dirent* each = readdir(folder)) {
    const int number = std::atoi(each->d_name);
    if (each->d_name[0] != '.' && number != dirfd(folder)) open.push_back(number);
  }
  closedir(folder);
  std::sort(open.begin(), open.end());
  for (const int each : open) std::printf("%d ", each);
  std::printf("\n");
}

void print_status(std::string_view field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field)) std::printf("%s\n", line.c_str());
  }
}

/// Says its number in a file, which is whole when it is there, and stays.
[[noreturn]] void stay(const char* file) {
  const std::string begun = std::string(file) + ".begun";
  std::ofstream(begun) << getpid();
  std::rename(begun.c_str(), file);
  for (;;) pause();
}

void start_descendant(std::string_view kind, const char* file) {
  if (fork() != 0) return;
  if (kind != "child") setsid();
  if (kind == "daemon" || kind == "hidden") {
    if (fork() != 0) _exit(0);
  }
  if (kind == "hidden") {
    // It has neither session, nor parent, nor environment of its starter.
    char* const none[] = {nullptr};
    const char* const again[] = {"subject", "stay", file, nullptr};
    execve("/proc/self/exe", const_cast<char* const*>(again), none);
    _exit(1);
  }
  stay(file);
}

/// A child of ours traces us from now on, as leak checkers do it, and holds our end until
/// that file is there. Says whether it may.
void be_traced(const char* file) {
  int told[2];
  if (pipe(told) != 0) return;
  const pid_t self = getpid();
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
  if (fork() == 0) {
    const char may = ptrace(PTRACE_SEIZE, self, nullptr, nullptr) == 0 ? 'y' : 'n';
    if (write(told[1], &may, 1) != 1 || may == 'n') _exit(1);
    for (int i = 0; access(file, F_OK) != 0 && i < 20'000; ++i) usleep(1000);
    _exit(0);
  }
  char may = 'n';
  if (read(told[0], &may, 1) != 1) may = 'n';
  std::puts(may == 'y' ? "traced" : "not traced");
}

void print_lines(long count) {
  for (long i = 0; i < count; ++i) std::printf("line %ld\n", i);
  std::fflush(stdout);
}

void allocate(std::size_t megabytes) {
  const std::size_t size = megabytes << 20;
  char* const at = static_cast<char*>(std::malloc(size));
  for (std::size_t i = 0; at && i < size; i += 4096)
    static_cast<volatile char*>(at)[i] = 1;
}

const char* next(char**& at) { return *at ? *at++ : ""; }

void obey(std::string_view order, char**& rest) {
  if (order == "exit") std::exit(std::atoi(next(rest)));
  if (order == "signal") die_by(std::atoi(next(rest)));
  if (order == "sleep") usleep(static_cast<useconds_t>(std::atoi(next(rest))) * 1000);
  if (order == "stay") stay(next(rest));
  if (order == "pause") {
    for (;;) pause();
  }
  if (order == "ignore-term") signal(SIGTERM, SIG_IGN);
  if (order == "exit-on-term") signal(SIGTERM, [](int) { _exit(7); });
  if (order == "print") std::puts(next(rest));
  if (order == "print-part") std::fputs(next(rest), stdout);
  if (order == "print-error") std::fprintf(stderr, "%s\n", next(rest));
  if (order == "flush") std::fflush(stdout);
  if (order == "lines") print_lines(std::atol(next(rest)));
  if (order == "long")
    std::fputs(std::string(std::strtoul(next(rest), nullptr, 10), 'x').c_str(), stdout);
  if (order == "bytes") std::fwrite("a\0b\xff\n", 1, 5, stdout);
  if (order == "descriptors") print_descriptors();
  if (order == "status") print_status(next(rest));
  if (order == "variable") {
    const char* const value = std::getenv(next(rest));
    std::puts(value ? value : "(unset)");
  }
  if (order == "folder") {
    char path[4096];
    std::puts(getcwd(path, sizeof path) ? path : "?");
  }
  if (order == "open-files") {
    rlimit most{};
    getrlimit(RLIMIT_NOFILE, &most);
    std::printf("%llu\n", static_cast<unsigned long long>(most.rlim_cur));
  }
  if (order == "session") std::puts(getsid(0) == getpid() ? "own" : "other");
  if (order == "write-to") {
    const int to = std::atoi(next(rest));
    if (write(to, "passed", 6) != 6) std::exit(99);
  }
  if (order == "child" || order == "session-child" || order == "daemon" ||
      order == "hidden")
    start_descendant(order, next(rest));
  if (order == "be-traced") be_traced(next(rest));
  if (order == "allocate") allocate(std::strtoul(next(rest), nullptr, 10));
  if (order == "now") {
    // The clock of steady_clock, when the first instruction of main has run.
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    std::printf("%lld\n", static_cast<long long>(std::chrono::nanoseconds(now).count()));
  }
}

}  // namespace

int main(int, char** arguments) {
  char** rest = arguments + 1;
  while (*rest) {
    const char* const order = *rest++;
    obey(order, rest);
  }
  return 0;
}
