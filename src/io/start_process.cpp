#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <thread>
#include <utility>

#include "io/process_handle.hpp"
#include "io/signals_blocked.hpp"
#include "manyworlds/detail/assertion.hpp"

// Newer than some headers.
#if !defined(CLONE_PIDFD)
#define CLONE_PIDFD 0x00001000
#endif
#if !defined(SYS_close_range)
#define SYS_close_range 436
#endif

#if defined(__GLIBC__)
// The thread sanitizer replaces `clone` by one for children with memory of their own.
extern "C" int __clone(int (*)(void*), void*, int, void*, ...) noexcept;
#define MANYWORLDS_CLONE __clone
#else
#define MANYWORLDS_CLONE clone
#endif

// The child runs in our memory on a stack of its own: its code is not instrumented.
#if defined(__clang__)
#define MANYWORLDS_IN_CHILD __attribute__((no_sanitize("address", "thread", "undefined")))
#else
#define MANYWORLDS_IN_CHILD \
  __attribute__((no_sanitize_address, no_sanitize_thread, no_sanitize_undefined))
#endif

namespace manyworlds::inline v0::detail {

namespace {

constexpr unsigned close_on_exec_range = 1u << 2;  // CLOSE_RANGE_CLOEXEC
constexpr int last_signal = 64;
constexpr std::size_t signal_bytes = last_signal / 8;

/// All that the child needs, made before it exists. It makes system calls only, as
/// signal-safety(7) asks of what runs beside suspended threads.
struct child_plan {
  const char* path = nullptr;
  char* const* arguments = nullptr;
  char* const* environment = nullptr;
  const char* folder = nullptr;
  int group = -1;
  bool is_in_group = false;
  pid_t parent = 0;
  passed_descriptor* descriptors = nullptr;  ///< ordered by `to`
  std::size_t descriptor_count = 0;
  const resource_limit* limits = nullptr;
  std::size_t limit_count = 0;
  const cpu_set_t* cpus = nullptr;
  std::size_t cpu_bytes = 0;
  const unsigned long* node_mask = nullptr;
  unsigned long node_bits = 0;

  // What the child answers: it shares our memory, and has gone on or ended before we do.
  volatile start_step failed = start_step::none;
  volatile int error = 0;
  volatile std::size_t at = 0;  ///< the number of the limit, or of the descriptor
};

MANYWORLDS_IN_CHILD void reset_signals() noexcept {
  // The layout of the kernel, which begins with the handler: all zero is SIG_DFL.
  constexpr std::size_t words = 8;
  const unsigned long by_default[words] = {};
  for (int number = 1; number <= last_signal; ++number) {
    if (number == SIGKILL || number == SIGSTOP) continue;
    ::syscall(SYS_rt_sigaction, number, by_default, nullptr, signal_bytes);
  }
}

MANYWORLDS_IN_CHILD bool keep_from_program(unsigned first, unsigned last) noexcept {
  if (first > last) return true;
  if (::syscall(SYS_close_range, first, last, close_on_exec_range) == 0) return true;
  // Linux before 5.11, or a seccomp filter that does not know the call.
  const auto folder = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, "/proc/self/fd",
                                                 O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0));
  if (folder < 0) return false;
  alignas(8) char entries[1024];
  for (;;) {
    const long got = ::syscall(SYS_getdents64, folder, entries, sizeof entries);
    if (got <= 0) return got == 0;
    for (long at = 0; at < got;) {
      // struct linux_dirent64: u64 inode, s64 offset, u16 length, u8 type, name.
      const auto* const entry = reinterpret_cast<const unsigned char*>(entries + at);
      at += entry[16] | entry[17] << 8;
      unsigned number = 0;
      const unsigned char* digit = entry + 19;
      for (; *digit >= '0' && *digit <= '9'; ++digit)
        number = number * 10 + (*digit - unsigned{'0'});
      if (digit == entry + 19 || number < first || number > last) continue;
      ::syscall(SYS_fcntl, number, F_SETFD, FD_CLOEXEC);
    }
  }
}

MANYWORLDS_IN_CHILD bool pass_descriptors(child_plan& plan) noexcept {
  const std::size_t count = plan.descriptor_count;
  const int above = count > 0 ? plan.descriptors[count - 1].to + 1 : 0;
  // First all are out of the way of each other.
  for (std::size_t i = 0; i < count; ++i) {
    passed_descriptor& each = plan.descriptors[i];
    plan.at = i;
    const long moved = ::syscall(SYS_fcntl, each.from, F_DUPFD_CLOEXEC, above);
    if (moved < 0) return false;
    each.from = static_cast<int>(moved);
  }
  unsigned next = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const passed_descriptor& each = plan.descriptors[i];
    plan.at = i;
    if (::syscall(SYS_dup3, each.from, each.to, 0) < 0) return false;
    if (each.to > 0 && !keep_from_program(next, static_cast<unsigned>(each.to) - 1))
      return false;
    next = static_cast<unsigned>(each.to) + 1;
  }
  plan.at = count;
  return keep_from_program(next, ~0u);
}

MANYWORLDS_IN_CHILD bool set_limits(child_plan& plan) noexcept {
  for (std::size_t i = 0; i < plan.limit_count; ++i) {
    const resource_limit& wanted = plan.limits[i];
    plan.at = i;
    ::rlimit now;
    if (::syscall(SYS_prlimit64, 0, wanted.resource, nullptr, &now) != 0) return false;
    now.rlim_cur = wanted.value;
    if (now.rlim_max < wanted.value) now.rlim_max = wanted.value;
    if (::syscall(SYS_prlimit64, 0, wanted.resource, &now, nullptr) != 0) return false;
  }
  return true;
}

MANYWORLDS_IN_CHILD bool enter_group(int folder) noexcept {
  const auto list = static_cast<int>(
      ::syscall(SYS_openat, folder, "cgroup.procs", O_WRONLY | O_CLOEXEC, 0));
  return list >= 0 && ::syscall(SYS_write, list, "0", 1) == 1;
}

MANYWORLDS_IN_CHILD start_step prepare(child_plan& plan) noexcept {
  reset_signals();
  if (::syscall(SYS_setsid) < 0) return start_step::session;
  if (::syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0)
    return start_step::parent;
  if (::syscall(SYS_getppid) != plan.parent) {
    // It died before it could be asked for.
    errno = ESRCH;
    return start_step::parent;
  }
  if (plan.group >= 0 && !plan.is_in_group && !enter_group(plan.group))
    return start_step::group;
  if (plan.folder && ::syscall(SYS_chdir, plan.folder) != 0) return start_step::folder;
  if (!pass_descriptors(plan)) return start_step::descriptors;
  if (!set_limits(plan)) return start_step::limits;
  if (plan.cpus && ::syscall(SYS_sched_setaffinity, 0, plan.cpu_bytes, plan.cpus) < 0)
    return start_step::cpus;
  if (plan.node_mask &&
      ::syscall(SYS_set_mempolicy, MPOL_BIND, plan.node_mask, plan.node_bits) != 0)
    return start_step::memory_node;
  const unsigned long none = 0;
  ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, nullptr, signal_bytes);
  ::syscall(SYS_execve, plan.path, plan.arguments, plan.environment);
  return start_step::execute;
}

MANYWORLDS_IN_CHILD int run_child(void* given) noexcept {
  child_plan& plan = *static_cast<child_plan*>(given);
  const start_step failed = prepare(plan);
  plan.error = errno;
  plan.failed = failed;
  for (;;) ::syscall(SYS_exit_group, 127);
}

/// The child's stack, with a page below it that nothing may touch.
class child_stack {
 public:
  child_stack() noexcept
      : memory_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0)) {
    if (is_there()) ::mprotect(memory_, page, PROT_NONE);
  }
  child_stack(const child_stack&) = delete;
  child_stack& operator=(const child_stack&) = delete;
  ~child_stack() {
    if (is_there()) ::munmap(memory_, bytes);
  }
  [[nodiscard]] bool is_there() const noexcept { return memory_ != MAP_FAILED; }
  [[nodiscard]] void* top() const noexcept { return static_cast<char*>(memory_) + bytes; }
  [[nodiscard]] void* bottom() const noexcept {
    return static_cast<char*>(memory_) + page;
  }
  [[nodiscard]] std::size_t size() const noexcept { return bytes - page; }

 private:
  static constexpr std::size_t page = 4096;
  static constexpr std::size_t bytes = 16 * page;
  void* memory_;
};

/// Blocks also the two signals that the C library keeps for itself.
class all_signals_blocked {
 public:
  all_signals_blocked() noexcept {
    const unsigned long all = ~0ul;
    ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before_, signal_bytes);
  }
  all_signals_blocked(const all_signals_blocked&) = delete;
  all_signals_blocked& operator=(const all_signals_blocked&) = delete;
  ~all_signals_blocked() {
    ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before_, nullptr, signal_bytes);
  }

 private:
  unsigned long before_ = 0;
};

#if defined(__x86_64__) || defined(__aarch64__)
/// The kernel's struct clone_args, as of Linux 5.7.
struct clone3_arguments {
  std::uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
  std::uint64_t set_tid, set_tid_size, cgroup;
};

/// Makes a child in its control group. To move it there later costs 15 ms, since the
/// kernel waits until all CPUs have seen that. The C library has no call for it. Returns
/// a negative errno.
long clone_into_group(child_plan& plan, const child_stack& stack, int& pidfd) noexcept {
  constexpr std::uint64_t into_cgroup = 0x200000000;
  clone3_arguments given{};
  given.flags = CLONE_VM | CLONE_VFORK | CLONE_PIDFD | into_cgroup;
  given.pidfd = reinterpret_cast<std::uint64_t>(&pidfd);
  given.exit_signal = SIGCHLD;
  given.stack = reinterpret_cast<std::uint64_t>(stack.bottom());
  given.stack_size = stack.size();
  given.cgroup = static_cast<std::uint64_t>(plan.group);
  // The child has all registers, and a stack without a return address: it calls.
#if defined(__x86_64__)
  register long result asm("rax") = SYS_clone3;
  register void* at asm("rdi") = &given;
  register std::size_t size asm("rsi") = sizeof given;
  asm volatile(
      "syscall\n\t"
      "test %%rax, %%rax\n\t"
      "jnz 1f\n\t"
      "mov %[plan], %%rdi\n\t"
      "call *%[run]\n\t"
      "ud2\n"
      "1:"
      : "+r"(result)
      : "r"(at), "r"(size), [plan] "r"(static_cast<void*>(&plan)), [run] "r"(&run_child)
      : "rcx", "r11", "memory", "cc");
#else
  register long result asm("x0") = reinterpret_cast<long>(&given);
  register std::size_t size asm("x1") = sizeof given;
  register long number asm("x8") = SYS_clone3;
  asm volatile(
      "svc #0\n\t"
      "cbnz x0, 1f\n\t"
      "mov x0, %[plan]\n\t"
      "blr %[run]\n\t"
      "brk #1\n"
      "1:"
      : "+r"(result)
      : "r"(size),
        "r"(number), [plan] "r"(static_cast<void*>(&plan)), [run] "r"(&run_child)
      : "memory", "cc");
#endif
  return result;
}
#else
long clone_into_group(child_plan&, const child_stack&, int&) noexcept { return -ENOSYS; }
#endif

/// Makes the process, which has executed the program, or has failed, when this returns.
/// Returns its number, or -1.
pid_t make_process(child_plan& plan, int& pidfd) noexcept {
  const child_stack stack;
  if (!stack.is_there()) return -1;
  const all_signals_blocked during;
  constexpr int flags = CLONE_VM | CLONE_VFORK | SIGCHLD;
  plan.parent = ::getpid();
  pidfd = -1;
  if (plan.group >= 0) {
    plan.is_in_group = true;
    const long made = clone_into_group(plan, stack, pidfd);
    if (made >= 0) return static_cast<pid_t>(made);
    if (made == -EAGAIN || made == -ENOMEM) {
      errno = static_cast<int>(-made);
      return -1;
    }
    // It is refused, as by seccomp filters: the child moves there by itself.
    plan.is_in_group = false;
    pidfd = -1;
  }
  const pid_t made =
      MANYWORLDS_CLONE(run_child, stack.top(), flags | CLONE_PIDFD, &plan, &pidfd);
  if (made >= 0 || (errno != EINVAL && errno != ENOSYS && errno != EPERM)) return made;
  return MANYWORLDS_CLONE(run_child, stack.top(), flags, &plan, nullptr);
}

/// Lets a thread wait where no pidfd can be made, and tell an eventfd.
unique_descriptor end_by_thread(pid_t pid) {
  unique_descriptor told(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), "eventfd");
  const int teller = ::fcntl(told.get(), F_DUPFD_CLOEXEC, 3);
  if (teller < 0) throw std::system_error(errno, std::generic_category(), "dup");
  const signals_blocked inherited;
  std::thread([pid, teller] {
    siginfo_t info;
    // It leaves the process for `reap`.
    while (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT) != 0 &&
           errno == EINTR)
      continue;
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(teller, &one, sizeof one);
    ::close(teller);
  }).detach();
  return told;
}

process_handle handle_of(pid_t pid, int pidfd) {
  unique_descriptor end(pidfd);
  if (!end) {
    const long opened = ::syscall(SYS_pidfd_open, pid, 0);
    if (opened >= 0) end = unique_descriptor(static_cast<int>(opened));
  }
  if (end) return process_handle(pid, std::move(end), true);
  return process_handle(pid, end_by_thread(pid), false);
}

// ---------------------------------------------------------------------- what it is given

std::string_view name_in(std::string_view variable) noexcept {
  return variable.substr(0, variable.find('='));
}

std::vector<std::string> environment_for(const process_description& what,
                                         const std::string& added) {
  std::vector<std::string> made;
  if (what.inherits_environment) {
    for (char** each = ::environ; each && *each; ++each) made.emplace_back(*each);
  }
  const auto drop = [&](std::string_view name) {
    std::erase_if(made, [&](const std::string& v) { return name_in(v) == name; });
  };
  for (const auto& [name, value] : what.changes) {
    drop(name);
    if (value) made.push_back(name + '=' + *value);
  }
  if (!added.empty()) {
    drop(name_in(added));
    made.push_back(added);
  }
  return made;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> made;
  for (std::string& each : texts) made.push_back(each.data());
  made.push_back(nullptr);
  return made;
}

/// Says whether the program could be executed there, as an errno.
int refusal_of(const std::string& path, const std::string& folder) {
  const bool is_relative = path.front() != '/' && !folder.empty();
  const std::string seen = is_relative ? folder + '/' + path : path;
  struct stat is;
  if (::stat(seen.c_str(), &is) != 0) return errno;
  if (!S_ISREG(is.st_mode)) return EACCES;
  return ::faccessat(AT_FDCWD, seen.c_str(), X_OK, AT_EACCESS) == 0 ? 0 : errno;
}

/// Finds a program without a slash along PATH, as execvp does: what may not be executed
/// is passed over, and reported only if nothing else is there. Returns an errno.
int find_program(const process_description& what,
                 const std::vector<std::string>& environment, std::string& path) {
  path = what.program;
  if (path.empty()) return ENOENT;
  if (path.find('/') != std::string::npos) return 0;
  std::string_view along = "/bin:/usr/bin";
  for (const std::string& each : environment) {
    if (each.starts_with("PATH=")) along = std::string_view(each).substr(5);
  }
  int error = ENOENT;
  for (bool is_last = false; !is_last;) {
    const std::size_t end = along.find(':');
    is_last = end == std::string_view::npos;
    const std::string_view folder = along.substr(0, end);
    path =
        folder.empty() ? "./" + what.program : std::string(folder) + '/' + what.program;
    const int refused = refusal_of(path, what.folder);
    if (refused == 0) return 0;
    if (refused == EACCES) error = EACCES;
    if (!is_last) along.remove_prefix(end + 1);
  }
  path = what.program;
  return error;
}

std::string name_of_limit(int resource) {
  switch (resource) {
    case RLIMIT_NOFILE:
      return "open files";
    case RLIMIT_CORE:
      return "core size";
    case RLIMIT_MEMLOCK:
      return "locked memory";
    case RLIMIT_AS:
      return "address space";
    case RLIMIT_NPROC:
      return "processes";
    case RLIMIT_STACK:
      return "stack size";
    case RLIMIT_FSIZE:
      return "file size";
    case RLIMIT_CPU:
      return "CPU time";
    default:
      return "resource " + std::to_string(resource);
  }
}

std::string list_of(const std::vector<unsigned>& numbers) {
  std::string text;
  for (const unsigned each : numbers)
    text += (text.empty() ? "" : ",") + std::to_string(each);
  return text;
}

/// Returns a descriptor with its number here and there; files of the output have none
/// here.
std::string name_of_descriptor(const process_description& what, const child_plan& plan) {
  if (plan.at >= plan.descriptor_count) return {};
  const int to = plan.descriptors[plan.at].to;
  for (const passed_descriptor& each : what.descriptors) {
    if (each.to == to) return std::to_string(each.from) + " as " + std::to_string(to);
  }
  return std::to_string(to);
}

/// Returns what the failed step concerned.
std::string object_of(const process_description& what, const child_plan& plan) {
  switch (plan.failed) {
    case start_step::folder:
      return what.folder;
    case start_step::descriptors:
      return name_of_descriptor(what, plan);
    case start_step::limits:
      return name_of_limit(what.limits[plan.at].resource);
    case start_step::cpus:
      return "CPU " + list_of(what.cpus);
    case start_step::memory_node:
      return "node " + std::to_string(*what.memory_node);
    case start_step::execute:
      // The file is there: a script's interpreter, or a program's loader, is not.
      return plan.error == ENOENT && refusal_of(plan.path, what.folder) == 0
                 ? std::string("interpreter")
                 : std::string();
    default:
      return {};
  }
}

/// Owns what a child's plan points to.
class prepared_start {
 public:
  prepared_start(const process_description& what, const start_additions& more)
      : environment_(environment_for(what, more.variable)),
        descriptors_(what.descriptors) {
    arguments_.push_back(what.program);
    arguments_.insert(arguments_.end(), what.arguments.begin(), what.arguments.end());
    argument_pointers_ = pointers_to(arguments_);
    environment_pointers_ = pointers_to(environment_);
    plan.arguments = argument_pointers_.data();
    plan.environment = environment_pointers_.data();
    plan.folder = what.folder.empty() ? nullptr : what.folder.c_str();
    plan.group = more.group;
    plan.limits = what.limits.data();
    plan.limit_count = what.limits.size();
    bind(what);
  }
  prepared_start(const prepared_start&) = delete;
  prepared_start& operator=(const prepared_start&) = delete;

  /// Opens the files that the program writes.
  [[nodiscard]] start_failure open_files(const process_description& what) {
    for (const written_file& each : what.files) {
      const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY |
                        (each.truncates ? O_TRUNC : 0);
      unique_descriptor file(::open(each.path.c_str(), flags, 0644));
      if (!file) return {start_step::output, errno, each.path};
      for (const int to : each.to) descriptors_.push_back({file.get(), to});
      files_.push_back(std::move(file));
    }
    const auto by_target = [](const auto& a, const auto& b) { return a.to < b.to; };
    std::sort(descriptors_.begin(), descriptors_.end(), by_target);
    plan.descriptors = descriptors_.data();
    plan.descriptor_count = descriptors_.size();
    return {};
  }

  /// Returns an errno.
  [[nodiscard]] int find(const process_description& what) {
    const int error = find_program(what, environment_, path_);
    plan.path = path_.c_str();
    return error;
  }

  child_plan plan;

 private:
  void bind(const process_description& what) {
    if (!what.cpus.empty()) {
      cpus_.assign(
          1 + *std::max_element(what.cpus.begin(), what.cpus.end()) / CPU_SETSIZE,
          cpu_set_t{});
      plan.cpu_bytes = cpus_.size() * sizeof(cpu_set_t);
      for (const unsigned each : what.cpus) CPU_SET_S(each, plan.cpu_bytes, cpus_.data());
      plan.cpus = cpus_.data();
    }
    if (what.memory_node) {
      constexpr unsigned bits = sizeof(unsigned long) * CHAR_BIT;
      nodes_.assign(1 + *what.memory_node / bits, 0);
      nodes_.back() = 1ul << *what.memory_node % bits;
      plan.node_mask = nodes_.data();
      // The kernel takes one bit less than it is told of.
      plan.node_bits = nodes_.size() * bits + 1;
    }
  }

  std::vector<std::string> environment_;
  std::vector<passed_descriptor> descriptors_;
  std::vector<unique_descriptor> files_;
  std::vector<std::string> arguments_;
  std::vector<char*> argument_pointers_;
  std::vector<char*> environment_pointers_;
  std::string path_;
  std::vector<cpu_set_t> cpus_;
  std::vector<unsigned long> nodes_;
};

}  // namespace

std::variant<process_handle, start_failure> start_process(const process_description& what,
                                                          const start_additions& more) {
  prepared_start ready(what, more);
  if (const int error = ready.find(what); error != 0) {
    return start_failure{start_step::execute, error, {}};
  }
  if (const start_failure why = ready.open_files(what); why.error != 0) return why;
  int pidfd = -1;
  const pid_t pid = make_process(ready.plan, pidfd);
  if (pid < 0) return start_failure{start_step::process, errno, {}};
  MW_ASSERT(ready.plan.failed == start_step::none || ready.plan.error != 0,
            "a step that failed has an errno");
  if (ready.plan.failed == start_step::none) {
    try {
      return handle_of(pid, pidfd);
    } catch (const std::system_error& e) {
      // There are no descriptors or threads left to wait for its end.
      ready.plan.failed = start_step::process;
      ready.plan.error = e.code().value();
      ::kill(pid, SIGKILL);
    }
  } else if (pidfd >= 0) {
    ::close(pidfd);
  }
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) continue;
  return start_failure{ready.plan.failed, ready.plan.error, object_of(what, ready.plan)};
}

}  // namespace manyworlds::inline v0::detail
