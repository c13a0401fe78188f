// Runs a program where system calls are refused, as a container would refuse them:
//
//   refusing [docker] [CALL[=ERRNO]]... -- PROGRAM [ARGUMENT]...
//
//   docker   what Docker's default profile and capabilities leave (of a host with
//            a kernel and Docker so old that process_vm_readv is refused as well,
//            which it is by other engines still)
//   CALL     one call of the list below; ERRNO is EPERM if it is not said
#include <errno.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "refused_calls.hpp"

namespace {

using manyworlds::testing::call_filter;

struct named {
  std::string_view name;
  long value;
};

constexpr named calls[] = {
    {"fallocate", SYS_fallocate},
    {"futex_waitv", 449},  // newer than some headers
    {"io_uring_setup", SYS_io_uring_setup},
    {"memfd_create", SYS_memfd_create},
    {"pidfd_open", SYS_pidfd_open},
    {"process_vm_readv", SYS_process_vm_readv},
    {"set_robust_list", SYS_set_robust_list},
};
constexpr named errors[] = {
    {"EACCES", EACCES}, {"EINVAL", EINVAL}, {"EMFILE", EMFILE}, {"ENOMEM", ENOMEM},
    {"ENOSPC", ENOSPC}, {"ENOSYS", ENOSYS}, {"EPERM", EPERM},
};

// What exists and stands in no rule of the profile that a container has by default. The
// filter names what is refused: the profile names the 360 calls that are not.
constexpr long refused_by_docker[] = {
    SYS_acct,
    SYS_add_key,
    SYS_bpf,
    SYS_clock_settime,
    SYS_delete_module,
    SYS_fanotify_init,
    SYS_finit_module,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fsopen,
    SYS_fspick,
    SYS_get_mempolicy,
    SYS_init_module,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_io_uring_setup,
    SYS_kcmp,
    SYS_kexec_file_load,
    SYS_kexec_load,
    SYS_keyctl,
    SYS_lookup_dcookie,
    SYS_mbind,
    SYS_migrate_pages,
    SYS_mount,
    SYS_mount_setattr,
    SYS_move_mount,
    SYS_move_pages,
    SYS_nfsservctl,
    SYS_open_by_handle_at,
    SYS_open_tree,
    SYS_perf_event_open,
    SYS_personality,
    SYS_pidfd_getfd,
    SYS_pivot_root,
    SYS_process_madvise,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_ptrace,
    SYS_quotactl,
    SYS_reboot,
    SYS_request_key,
    SYS_set_mempolicy,
    SYS_setdomainname,
    SYS_sethostname,
    SYS_setns,
    SYS_settimeofday,
    SYS_swapoff,
    SYS_swapon,
    SYS_syslog,
    SYS_umount2,
    SYS_unshare,
    SYS_userfaultfd,
    SYS_vhangup,
};
/// The newest call that the profile knows. For those that come later a C library is told
/// that they do not exist, so that it takes another way.
constexpr long newest_known = 466;

constexpr std::uint32_t new_namespaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS |
                                         CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID |
                                         CLONE_NEWNET;

void add_docker(call_filter& to) {
  for (const long call : refused_by_docker) to.refuse(call, EPERM);
  // Its flags lie in memory, where no filter sees them: the C library takes the old one.
  to.refuse(SYS_clone3, ENOSYS);
  to.refuse_with_bits(SYS_clone, 0, new_namespaces, EPERM);
  to.refuse_with_value(SYS_socket, 0, AF_ALG, EPERM);
  to.refuse_with_value(SYS_socket, 0, AF_VSOCK, EPERM);
  to.refuse_above(newest_known, ENOSYS);
}

constexpr int kept_by_docker[] = {
    CAP_AUDIT_WRITE, CAP_CHOWN,   CAP_DAC_OVERRIDE,     CAP_FOWNER,     CAP_FSETID,
    CAP_KILL,        CAP_MKNOD,   CAP_NET_BIND_SERVICE, CAP_NET_RAW,    CAP_SETFCAP,
    CAP_SETGID,      CAP_SETPCAP, CAP_SETUID,           CAP_SYS_CHROOT,
};

bool drop_capabilities() {
  std::uint32_t kept[2] = {0, 0};
  for (const int c : kept_by_docker) kept[CAP_TO_INDEX(c)] |= CAP_TO_MASK(c);
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  if (::syscall(SYS_capget, &header, data) != 0) return false;
  // Who is not root has none to drop.
  if (data[0].permitted == 0 && data[1].permitted == 0) return true;
  for (int c = 0; c <= CAP_LAST_CAP; ++c) {
    const bool is_kept = (kept[CAP_TO_INDEX(c)] & CAP_TO_MASK(c)) != 0;
    // One that this kernel does not know is not there to be dropped.
    if (!is_kept) ::prctl(PR_CAPBSET_DROP, c, 0, 0, 0);
  }
  for (int half = 0; half < 2; ++half) {
    data[half].permitted &= kept[half];
    data[half].effective &= kept[half];
    data[half].inheritable = 0;
  }
  return ::syscall(SYS_capset, &header, data) == 0;
}

template <std::size_t N>
long find(const named (&among)[N], std::string_view name) {
  for (const named& each : among) {
    if (each.name == name) return each.value;
  }
  std::fprintf(stderr, "refusing: unknown: %.*s\n", static_cast<int>(name.size()),
               name.data());
  std::exit(125);
}

}  // namespace

int main(int argc, char** argv) {
  call_filter filter;
  bool is_docker = false;
  int at = 1;
  for (; at < argc && std::strcmp(argv[at], "--") != 0; ++at) {
    const std::string_view word = argv[at];
    const auto equals = word.find('=');
    if (word == "docker") {
      is_docker = true;
    } else {
      const bool says_error = equals != std::string_view::npos;
      const long error = says_error ? find(errors, word.substr(equals + 1)) : EPERM;
      filter.refuse(find(calls, word.substr(0, equals)), static_cast<int>(error));
    }
  }
  if (at + 1 >= argc) {
    std::fprintf(stderr, "refusing [docker] [CALL[=ERRNO]]... -- PROGRAM...\n");
    return 125;
  }
  if (is_docker) add_docker(filter);
  if ((is_docker && !drop_capabilities()) || !filter.install()) {
    std::perror("refusing");
    return 125;
  }
  ::execvp(argv[at + 1], argv + at + 1);
  std::perror(argv[at + 1]);
  return 126;
}
