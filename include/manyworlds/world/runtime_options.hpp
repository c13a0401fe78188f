// Runtime options: threads, addresses, the secret, shared memory, logging.
#pragma once

#include <span>

#include "manyworlds/algorithms.hpp"
#include "manyworlds/inline_text.hpp"
#include "manyworlds/io/environment.hpp"
#include "manyworlds/observe/log.hpp"
#include "manyworlds/time.hpp"

namespace manyworlds::inline v0 {

namespace detail {
class backend_factory;
}  // namespace detail

class environment;

/// Configures a runtime. It is trivially destructible. Lifetime: what pointers and
/// spans name must outlive the runtime.
struct runtime_options {
  /// Name of the reactor's thread, at most 11 bytes; the service thread appends "-svc".
  inline_text<11> thread_name = "manyworlds";
  /// The CPU to pin the reactor's thread to; -1 leaves it to the kernel.
  int cpu = -1;
  /// Time to spin before sleeping. Negative: 50 us; none where the control group has
  /// fewer than 2 CPUs, nor while a peer on this host is bound to the same single CPU.
  duration spin = duration(-1);
  engine_kind engine = engine_kind::automatic;
  /// The address where peers connect, numeric and with a port: "192.0.2.1:7000",
  /// "[::1]:0". Port 0 chooses one. Beyond loopback a secret, or `insecure`, is
  /// required.
  inline_text<63> listen = "127.0.0.1:0";
  /// The address that peers dial, if not the one listened on. It is numeric too; port 0
  /// means the same port.
  inline_text<63> advertise = {};
  secret_text secret = {};
  bool insecure = false;
  duration heartbeat = std::chrono::milliseconds(200);
  /// Uses shared memory with peers on this host that allow it too; otherwise all data
  /// goes over tcp.
  bool shared_memory = true;
  /// Reads large messages of such peers out of their memory (process_vm_readv), where
  /// the machine allows it. Otherwise they come out of shared pools, or in pieces.
  bool read_peers = true;
  /// Reads part of each message of 3 MiB and more from such peers by a second thread,
  /// where there are as many CPUs as members, and more than one. The thread is started
  /// when it is first needed, and sleeps otherwise.
  bool mover = true;
  /// Rules that choose the algorithms of its worlds' collectives, before the library's
  /// own rules (`algorithms.hpp`). All members of a world give the same, or it
  /// breaks (`mismatch`). Lifetime: they must outlive the runtime.
  std::span<const algorithm_rule> algorithms = {};
  /// Null: lines of `log_from` and above go to standard error.
  log_sink* log = nullptr;
  log_level log_from = log_level::warning;
  class environment* environment = nullptr;  ///< null: this machine
  /// Makes the backends of its worlds. Null: `make_host_backend`.
  detail::backend_factory* backends = nullptr;
};

}  // namespace manyworlds::inline v0
