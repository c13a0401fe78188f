"""Who takes part: each answers the same questions in the same form, or says what to install.

p2p(sizes) gives {size: {"p50_us": half a round trip, "gb_s": one way, 4 messages under way}},
pairs(sizes) gives {size: {"mean_us", "p50_us", "p99_us"}} of the slower of two pairs at once."""

import json
import os
import shutil
import signal
import socket
import subprocess
import time

LIMIT_S = 120
IN_FLIGHT = 4


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
    """As mwbench and mpi_driver.c reckon them, for programs that must be told."""

    def __init__(self, size, most):
        self.pings = min(max((64 << 20) // size, 2), most)
        self.messages = IN_FLIGHT * min(max((128 << 20) // size // IN_FLIGHT, 2), most)


class Mwbench:
    name = "manyworlds"
    package = "manyworlds itself: ninja benchmarks/mwbench"

    def __init__(self, program, options):
        self.program = program
        self.options = options

    def missing(self):
        return not os.access(self.program, os.X_OK)

    def ask(self, question, sizes, *arguments):
        output = run([self.program, "--json", "--transport", "shm", "--limit", str(LIMIT_S),
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


class Mpi:
    """One of the two MPIs, by the suffix Debian gives its commands."""

    def __init__(self, name, suffix, package, build, options, launch):
        self.name = name
        self.package = package
        self.compiler = f"mpicc.{suffix}"
        self.driver = os.path.join(build, f"mpi_driver.{suffix}")
        self.options = options
        self.launch = launch

    def missing(self):
        return shutil.which(self.compiler) is None or shutil.which(self.launch[0]) is None

    def build(self):
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mpi_driver.c")
        if os.path.exists(self.driver) and (
                os.path.getmtime(self.driver) > os.path.getmtime(source)):
            return
        os.makedirs(os.path.dirname(self.driver), exist_ok=True)
        run([self.compiler, "-O2", "-Wall", "-o", self.driver, source])

    def ask(self, ranks, question, sizes, *arguments):
        self.build()
        output = run([*self.launch, "-n", str(ranks), self.driver, question,
                      ",".join(map(str, sizes)), *map(str, arguments)])
        return {row["size"]: row for row in rows_of(output)}

    def p2p(self, sizes):
        return self.ask(2, "p2p", sizes, self.options.inner_rounds, self.options.pings)

    def pairs(self, sizes):
        return self.ask(4, "pairs", sizes, self.options.seconds)


def open_mpi(build, options, name="Open MPI", *more):
    # Its own shared memory, whatever else it finds; nothing leaves loopback.
    return Mpi(name, "openmpi", "openmpi-bin libopenmpi-dev", build, options,
               ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
                "--mca", "plm", "isolated", "--mca", "oob_tcp_if_include", "lo",
                "--mca", "pml", "ob1", "--mca", "btl", "vader,self", *more])


def mpich(build, options):
    return Mpi("MPICH", "mpich", "mpich libmpich-dev", build, options,
               ["mpiexec.mpich", "-iface", "lo", "-hosts", "localhost"])


class Ucx:
    """ucx_perftest, once a size and question: it has no list of sizes on its command line."""

    package = "ucx-utils"

    def __init__(self, name, transports, options):
        self.name = name
        self.environment = {"UCX_TLS": transports, "UCX_NET_DEVICES": "lo"}
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


def of_p2p(program, build, options):
    return [Mwbench(program, options),
            Ucx("UCX", "posix,sysv,cma,self", options),
            Ucx("UCX default", "all", options),
            open_mpi(build, options),
            mpich(build, options)]


def of_pairs(program, build, options):
    return [Mwbench(program, options),
            open_mpi(build, options, "Open MPI, yielding", "--mca", "mpi_yield_when_idle", "1"),
            open_mpi(build, options, "Open MPI, not yielding", "--mca", "mpi_yield_when_idle",
                     "0"),
            mpich(build, options)]
