#include "settings.hpp"

#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <string_view>

namespace nccl_emulation {

namespace {

std::string_view text(const char* name, std::string_view otherwise) {
  const char* given = std::getenv(name);
  return given != nullptr && *given != '\0' ? std::string_view{given} : otherwise;
}

int number(const char* name, int otherwise) {
  const char* given = std::getenv(name);
  return given != nullptr && *given != '\0' ? std::atoi(given) : otherwise;
}

ending_mode ending(const char* name, ending_mode otherwise) {
  const auto given = text(name, "");
  if (given == "quick") return ending_mode::quick;
  if (given == "slow") return ending_mode::slow;
  if (given == "stuck") return ending_mode::stuck;
  if (given == "peers") return ending_mode::peers;
  return otherwise;
}

// As getHostHashOnce of NCCL 2.28.9 src/misc/utils.cc: once a process, so two threads of
// one process cannot differ.
std::uint64_t host() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return std::hash<std::string_view>{}(text("NCCL_HOSTID", name));
}

settings read() {
  settings s{};
  s.version = number("EMULATED_NCCL_VERSION", built_version);
  s.death = text("EMULATED_NCCL_DEATH", "nvlink") == "socket" ? death_mode::socket
                                                              : death_mode::nvlink;
  s.error_delay_ms = number("EMULATED_NCCL_ERROR_DELAY_MS", 100);
  s.eager = text("EMULATED_NCCL_SEND", "rendezvous") == "eager";
  s.abort = ending("EMULATED_NCCL_ABORT", ending_mode::quick);
  s.revoke = ending("EMULATED_NCCL_REVOKE", ending_mode::quick);
  s.destroy = ending("EMULATED_NCCL_DESTROY", ending_mode::peers);
  s.poison = number("EMULATED_NCCL_POISON", 1) != 0;
  s.most_waiting = number("EMULATED_NCCL_FIFO", 1 << 20);
  s.create_ms = number("EMULATED_NCCL_CREATE_MS", 0);
  s.connecting_meets = text("EMULATED_NCCL_CONNECT", "eager") == "meets";
  s.connects_at_use = s.version >= 22200 && number("NCCL_RUNTIME_CONNECT", 1) != 0;
  s.connect_ms = number("EMULATED_NCCL_CONNECT_MS", s.connecting_meets ? 2 : 0);
  s.syncs_implicitly = number("EMULATED_CUDA_IMPLICIT_SYNC", 0) != 0;
  s.async_ms = number("EMULATED_NCCL_ASYNC_MS", 1);
  s.multiprocessors = number("EMULATED_CUDA_SMS", 132);
  s.shared_devices = s.version >= 23003 && number("NCCL_MULTI_RANK_GPU_ENABLE", 0) == 1;
  s.host_hash = host();
  return s;
}

}  // namespace

const settings& chosen() {
  static const settings once = read();
  return once;
}

}  // namespace nccl_emulation
