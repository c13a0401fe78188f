// Runtime options.
#pragma once

#include <span>

#include "manyworlds/host/algorithms.hpp"
#include "manyworlds/inline_text.hpp"
#include "manyworlds/io/environment.hpp"
#include "manyworlds/link/secret.hpp"
#include "manyworlds/observe/log.hpp"

namespace manyworlds::inline v0 {

class backend_factory;

/// How a runtime runs. Trivially destructible; what pointers name must outlive the
/// runtime.
struct runtime_options {
  /// Of the reactor's thread; the service thread appends "-svc". At most 11 bytes.
  inline_text<11> thread_name = "manyworlds";
  /// The CPU to pin the reactor's thread to; -1 leaves it to the kernel.
  int cpu = -1;
  /// How long to look before sleeping. Negative: 50 us; none where the control group has
  /// fewer than 2 CPUs, nor while a peer on this host is bound to the same single CPU.
  duration spin = duration(-1);
  engine_kind engine = engine_kind::automatic;
  /// Where peers connect: a numeric address and a port, "192.0.2.1:7000", "[::1]:0"; port
  /// 0 chooses one. Beyond loopback a secret, or `insecure`, is required.
  inline_text<63> listen = "127.0.0.1:0";
  /// What peers dial, if not the address listened on: numeric too, port 0 for the same.
  inline_text<63> advertise = {};
  secret_text secret = {};
  bool insecure = false;
  duration heartbeat = std::chrono::milliseconds(200);
  /// With peers on this host that allow it too; otherwise all data goes over tcp.
  bool shared_memory = true;
  /// Whether large messages of such peers are read out of their memory
  /// (process_vm_readv), where the machine allows it. If not they come out of shared
  /// pools, or in pieces.
  bool read_peers = true;
  /// A second thread that reads part of each message of 3 MiB and more from such peers,
  /// where there are as many CPUs as members, and more than one. It is started when it is
  /// first needed, and sleeps otherwise.
  bool mover = true;
  /// How its worlds' collectives are carried out, before the library's own rules
  /// (`host/algorithms.hpp`). The same in all members of a world, or it breaks
  /// (`mismatch`). The rules must outlive the runtime.
  std::span<const algorithm_rule> algorithms = {};
  /// Null: lines of `log_from` and above go to standard error.
  log_sink* log = nullptr;
  log_level log_from = log_level::warning;
  /// Null: this machine.
  class environment* environment = nullptr;
  /// What moves the data of its worlds. Null: host memory, over tcp.
  backend_factory* backends = nullptr;
};

}  // namespace manyworlds::inline v0
