"""Who takes part: each answers the same questions in the same form, or says what to install.

p2p(sizes) gives {size: {"p50_us": half a round trip, "gb_s": one way, 4 messages under way}},
pairs(sizes) gives {size: {"mean_us", "p50_us", "p99_us"}} of the slower of two pairs at once,
collective(kind, members, sizes) gives {size: {"time_us", "p50_us", "p99_us"}}."""

import functools
import os
import shutil

from programs import HERE, LIMIT_S, Failed, rows_of, run, version_in

UCX_SHM = "posix,sysv,cma,self"


class Mwbench:
    compared = True
    name = "manyworlds"
    package = "manyworlds itself: ninja benchmarks/mwbench"

    def __init__(self, program, options):
        self.program = program
        self.options = options

    def missing(self):
        return not os.access(self.program, os.X_OK)

    def version(self):
        about = rows_of(run([self.program, "--json", "--no-launcher", "form", "--worlds", "1",
                             "--repeat", "1"]))[0]
        kind = "optimized" if about["optimized"] else "NOT OPTIMIZED"
        return f"{about['version']}, {about['compiler']}, {kind}, {about['engine']}"

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
        pin = ["--pin"] if members <= len(os.sched_getaffinity(0)) else []
        return self.ask("collectives", sizes, "--kinds", kind, "--members", str(members),
                        "--seconds", str(self.options.collective_seconds), *pin)


class Driver:
    """driver.c over one library's transport_*.c, compiled when either is newer."""

    compared = True
    driver = "driver.c"
    header = "transport.h"

    def __init__(self, name, library, package, options, transport, compiler, launch, show_version,
                 environment=None):
        self.name = name
        self.package = package
        self.options = options
        self.transport = transport
        self.compiler = compiler
        self.launch = launch
        self.show_version = show_version
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

    def version(self):
        return version_in(self.show_version)

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

    def command(self, ranks, question, *arguments):
        self.build()
        launch = [*self.launch, "-n", str(ranks)] if self.launch else []
        return [*launch, self.program, question, *map(str, arguments)]

    def ask(self, ranks, question, sizes, *arguments):
        listed = ",".join(map(str, sizes))
        output = run(self.command(ranks, question, listed, *arguments), self.environment)
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
                  ["mpicc.openmpi"], [*OPEN_MPI, *more], ["mpirun.openmpi", "--version"])


def mpich(options, driver=Driver, transport="transport_mpi.c"):
    return driver("MPICH", "mpich", "mpich libmpich-dev", options, transport, ["mpicc.mpich"],
                  MPICH, ["mpiexec.mpich", "--version"])


def gloo(options):
    return CollectiveDriver("Gloo", "gloo", "libgloo-dev", options, "collectives_gloo.cpp",
                            ["gcc", "-lgloo", "-lstdc++", "-lpthread", "-lm"], [],
                            ["dpkg-query", "-W", "libgloo-dev"])


def ucx(options, name, transports):
    return Driver(name, "ucx", "libucx-dev", options, "transport_ucx.c",
                  ["gcc", "-lucp", "-lucs"], [], ["ucx_info", "-v"], ucx_environment(transports))


def ucx_environment(transports):
    return {"UCX_TLS": transports, "UCX_NET_DEVICES": "lo"}
