"""Who takes part: each answers the same questions in the same form, or says what to install.

p2p(sizes) gives {size: {"p50_us": half a round trip, "gb_s": one way, 4 messages under way}},
pairs(sizes) gives {size: {"mean_us", "p50_us", "p99_us"}} of the slower of two pairs at once,
collective(kind, members, sizes) gives {size: {"time_us", "p50_us", "p99_us"}}."""

import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import time

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT_S = 120
IN_FLIGHT = 4
UCX_SHM = "posix,sysv,cma,self"


class Failed(Exception):
    """A contestant did not answer; the others go on."""


def run(command, environment=None):
    """What the command printed. Nothing that it started outlives LIMIT_S."""
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             env=os.environ | (environment or {}), start_new_session=True)
    try:
        out, err = child.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        end(child)
        raise Failed(f"{command[0]}: no answer within {LIMIT_S} s") from None
    if child.returncode != 0:
        raise Failed(f"{' '.join(command)} ended with {child.returncode}: {(err + out)[-500:]}")
    return out


def end(child):
    """First asks, since a launcher ends its ranks, then kills the group that is our child's."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, sign)
            child.communicate(timeout=5)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass


def rows_of(output):
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


class Counts:
    """As mwbench and driver.c reckon them, for programs that must be told."""

    def __init__(self, size, most):
        self.pings = min(max((64 << 20) // size, 2), most)
        self.messages = IN_FLIGHT * min(max((128 << 20) // size // IN_FLIGHT, 2), most)


class Mwbench:
    compared = True
    name = "manyworlds"
    package = "manyworlds itself: ninja benchmarks/mwbench"

    def __init__(self, program, options):
        self.program = program
        self.options = options

    def missing(self):
        return not os.access(self.program, os.X_OK)

    def ask(self, question, sizes, *arguments):
        output = run([self.program, "--json", "--no-launcher", "--transport", "shm", "--limit", str(LIMIT_S),
                      question, "--sizes", ",".join(map(str, sizes)), *arguments])
        return {row["size"]: row for row in rows_of(output) if row["bench"] == question}

    def p2p(self, sizes):
        o = self.options
        rows = self.ask("p2p", sizes, "--pin", "--rounds", str(o.inner_rounds), "--pings",
                        str(o.pings), "--idle-worlds", str(o.idle_worlds))
        return {size: {"p50_us": row["p50_us"], "gb_s": row["gb_s"], "raw_us": row["limit_us"],
                       "raw_gb_s": row["limit_gb_s"]} for size, row in rows.items()}

    def pairs(self, sizes):
        return self.ask("pairs", sizes, "--pairs", "2", "--seconds", str(self.options.seconds))

    def collective(self, kind, members, sizes):
        pin = ["--pin"] if members <= os.cpu_count() else []
        return self.ask("collectives", sizes, "--kinds", kind, "--members", str(members),
                        "--seconds", str(self.options.collective_seconds), *pin)


class Driver:
    """driver.c over one library's transport_*.c, compiled when either is newer."""

    compared = True
    driver = "driver.c"
    header = "transport.h"

    def __init__(self, name, library, package, options, transport, compiler, launch,
                 environment=None):
        self.name = name
        self.package = package
        self.options = options
        self.transport = transport
        self.compiler = compiler
        self.launch = launch
        self.environment = environment
        self.program = os.path.join(options.build, f"{self.driver}.{library}")

    def missing(self):
        commands = [self.compiler[0], *self.launch[:1]]
        return any(shutil.which(c) is None for c in commands) or not self.has_headers()

    @functools.cache
    def has_headers(self):
        try:
            run([*self.compiler, "-fsyntax-only", os.path.join(HERE, self.transport)])
        except Failed:
            return False
        return True

    def build(self):
        sources = [os.path.join(HERE, name) for name in (self.driver, self.transport)]
        newest = max(map(os.path.getmtime, [*sources, os.path.join(HERE, self.header)]))
        if os.path.exists(self.program) and os.path.getmtime(self.program) > newest:
            return
        os.makedirs(self.options.build, exist_ok=True)
        # Replaced when it is whole: a compiler that was interrupted leaves half a program.
        run([self.compiler[0], "-O2", "-flto", "-Wall", "-Wextra", "-o", self.program + ".new",
             *sources, *self.compiler[1:]])
        os.replace(self.program + ".new", self.program)

    def ask(self, ranks, question, sizes, *arguments):
        self.build()
        launch = [*self.launch, "-n", str(ranks)] if self.launch else []
        output = run([*launch, self.program, question, ",".join(map(str, sizes)),
                      *map(str, arguments)], self.environment)
        return {row["size"]: row for row in rows_of(output)}

    def p2p(self, sizes):
        return self.ask(2, "p2p", sizes, self.options.inner_rounds, self.options.pings)

    def pairs(self, sizes):
        return self.ask(4, "pairs", sizes, self.options.seconds)


class CollectiveDriver(Driver):
    """The same of collectives.c and one library's collectives_*."""

    driver = "collectives.c"
    header = "collectives.h"

    def collective(self, kind, members, sizes):
        return self.ask(members, kind, sizes, self.options.collective_seconds, members)


# Its own shared memory, whatever else it finds; nothing leaves loopback.
OPEN_MPI = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
            "--mca", "plm", "isolated", "--mca", "oob_tcp_if_include", "lo",
            "--mca", "pml", "ob1", "--mca", "btl", "vader,self"]
MPICH = ["mpiexec.mpich", "-iface", "lo", "-hosts", "localhost"]


def open_mpi(options, name="Open MPI", *more, driver=Driver, transport="transport_mpi.c"):
    return driver(name, "openmpi", "openmpi-bin libopenmpi-dev", options, transport,
                  ["mpicc.openmpi"], [*OPEN_MPI, *more])


def mpich(options, driver=Driver, transport="transport_mpi.c"):
    return driver("MPICH", "mpich", "mpich libmpich-dev", options, transport, ["mpicc.mpich"],
                  MPICH)


def gloo(options):
    return CollectiveDriver("Gloo", "gloo", "libgloo-dev", options, "collectives_gloo.cpp",
                            ["gcc", "-lgloo", "-lstdc++", "-lpthread", "-lm"], [])


def ucx(options, name, transports):
    return Driver(name, "ucx", "libucx-dev", options, "transport_ucx.c",
                  ["gcc", "-lucp", "-lucs"], [], ucx_environment(transports))


def ucx_environment(transports):
    return {"UCX_TLS": transports, "UCX_NET_DEVICES": "lo"}


class UcxPerftest:
    """Once a size and question: it has no list of sizes on its command line. Not compared, since
    what it sends is never written: it stays in the caches of who reads it."""

    name = "ucx_perftest"
    package = "ucx-utils"
    compared = False

    def __init__(self, options):
        self.environment = ucx_environment(UCX_SHM)
        self.options = options

    def missing(self):
        return shutil.which("ucx_perftest") is None

    def p2p(self, sizes):
        return {size: self.one(size) for size in sizes}

    def one(self, size):
        counts = Counts(size, self.options.pings)
        rounds = self.options.inner_rounds
        latency = self.ask(size, counts.pings * rounds, "tag_lat")
        flow = self.ask(size, counts.messages * rounds, "tag_bw", "-O", str(IN_FLIGHT))
        # Columns of -v: iterations, 50th percentile, two means of us, two of MB (of 2^20) a
        # second, two rates.
        return {"p50_us": float(latency[1]), "gb_s": float(flow[5]) * (1 << 20) / 1e9}

    def ask(self, size, iterations, test, *more):
        port = free_port()
        common = ["ucx_perftest", "-p", str(port), "-c"]
        server = subprocess.Popen(
            [*common, "1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=os.environ | self.environment, start_new_session=True)
        try:
            wait_for_listener(server, port)
            output = run([*common, "0", "127.0.0.1", "-t", test, "-s", str(size), "-n",
                          str(iterations), "-w", str(max(2, iterations // 20)), "-f", "-v",
                          *more], self.environment)
            return [line for line in output.splitlines() if line][-1].split(",")
        finally:
            end(server)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for_listener(server, port):
    """Looks in the kernel's table: a connection made to find out would be taken for the client."""
    listening = f":{port:04X} 00000000:0000 0A"
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and server.poll() is None:
        with open("/proc/net/tcp") as table:
            if any(listening in line for line in table):
                return
        time.sleep(0.01)
    raise Failed("ucx_perftest does not listen")


def of_p2p(program, options):
    return [Mwbench(program, options), ucx(options, "UCX", UCX_SHM),
            ucx(options, "UCX default", "all"), UcxPerftest(options), open_mpi(options),
            mpich(options)]


def of_pairs(program, options):
    return [Mwbench(program, options),
            open_mpi(options, "Open MPI, yielding", "--mca", "mpi_yield_when_idle", "1"),
            open_mpi(options, "Open MPI, not yielding", "--mca", "mpi_yield_when_idle", "0"),
            mpich(options)]


def of_collectives(program, options):
    over_mpi = {"driver": CollectiveDriver, "transport": "collectives_mpi.c"}
    return [Mwbench(program, options), open_mpi(options, **over_mpi), mpich(options, **over_mpi),
            gloo(options)]
