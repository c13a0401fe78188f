// System calls that the kernel refuses: as a seccomp filter does it, and nothing else.
#pragma once

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

namespace manyworlds::testing {

#if defined(__x86_64__)
inline constexpr std::uint32_t this_machine = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
inline constexpr std::uint32_t this_machine = AUDIT_ARCH_AARCH64;
#endif

/// Which calls fail, with which errno; 0 lets a call do nothing and succeed. Rules are
/// asked in their order; what none is about is allowed.
class call_filter {
 public:
  call_filter() {
    // Numbers of another architecture mean other calls.
    add(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(::seccomp_data, arch)));
    add(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, this_machine, 1, 0));
    add(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  }

  call_filter& refuse(long call, int error) {
    load_number();
    add(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(call), 0, 1));
    fail_with(error);
    return *this;
  }
  /// Refuses every call with a number above that.
  call_filter& refuse_above(long call, int error) {
    load_number();
    add(BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, static_cast<std::uint32_t>(call), 0, 1));
    fail_with(error);
    return *this;
  }
  /// Only with any of `bits` set in its argument of that index.
  call_filter& refuse_with_bits(long call, unsigned argument, std::uint32_t bits,
                                int error) {
    return refuse_if(call, argument, BPF_JSET, bits, error);
  }
  /// Only with that value as the lower half of its argument of that index.
  call_filter& refuse_with_value(long call, unsigned argument, std::uint32_t value,
                                 int error) {
    return refuse_if(call, argument, BPF_JEQ, value, error);
  }

  /// For this thread, those it starts and what it executes, for good. False if the
  /// kernel does not take it.
  [[nodiscard]] bool install() {
    auto program = program_;
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    const ::sock_fprog filter{static_cast<unsigned short>(program.size()),
                              program.data()};
    return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
  }

 private:
  void add(::sock_filter instruction) { program_.push_back(instruction); }
  void load_number() {
    add(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(::seccomp_data, nr)));
  }
  void fail_with(int error) {
    add(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(error)));
  }
  call_filter& refuse_if(long call, unsigned argument, unsigned test, std::uint32_t with,
                         int error) {
    const auto lower_half = static_cast<std::uint32_t>(offsetof(::seccomp_data, args) +
                                                       8 * std::size_t{argument});
    load_number();
    add(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(call), 0, 3));
    add(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, lower_half));
    add(BPF_JUMP(static_cast<std::uint16_t>(BPF_JMP | test | BPF_K), with, 0, 1));
    fail_with(error);
    return *this;
  }

  std::vector<::sock_filter> program_;
};

/// System calls of this number give this errno, in this thread and those it starts.
inline void refuse(long call, int error) {
  if (!call_filter().refuse(call, error).install()) ::_exit(9);
}

/// Runs `body` on a thread of its own: what it has refused to itself goes with it.
template <class Body>
void on_own_thread(Body body) {
  std::exception_ptr failed;
  std::thread([&] {
    try {
      body();
    } catch (...) {
      failed = std::current_exception();
    }
  }).join();
  if (failed) std::rethrow_exception(failed);
}

/// Runs `body` where the calls are refused, and in the threads that it starts: a runtime
/// made there meets the refusals, and no other does.
template <class Body>
void where_refused(call_filter calls, Body body) {
  on_own_thread([&] {
    if (!calls.install()) ::_exit(9);
    body();
  });
}

}  // namespace manyworlds::testing
