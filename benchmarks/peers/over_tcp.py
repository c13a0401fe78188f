"""Who answers over tcp, on a network of networks.py. Each has tcp(groups), which gives what p2p does."""

import json
import os
import shutil
import subprocess
import time

from contestants import MPICH, OPEN_MPI, Driver, Mwbench
from programs import LIMIT_S, Failed, end, rows_of, run, version_in

PORT = 29517


class OverTcp:
    """Asks for a list of (sizes, most round trips), one after the other."""

    compared = True

    def tcp(self, groups):
        return {size: row for sizes, pings in groups for size, row in self.messages(sizes, pings).items()}


class OursOverTcp(OverTcp, Mwbench):
    def __init__(self, program, options, network, engine="io_uring"):
        super().__init__(program, options)
        self.network = network
        self.engine = engine
        # An engine of ours is no peer of the other.
        self.compared = engine == "io_uring"
        self.name = Mwbench.name if self.compared else f"{Mwbench.name}, {engine}"

    def messages(self, sizes, pings):
        o = self.options
        command = [self.program, "--json", "--transport", "tcp", "--engine", self.engine, "--limit", str(LIMIT_S),
                   "p2p", "--pin", "--sizes", ",".join(map(str, sizes)), "--rounds", str(o.inner_rounds), "--pings",
                   str(pings), "--idle-worlds", str(o.idle_worlds)]
        output = run([command[0], "--no-launcher", *command[1:]]) if self.network.far is None else self.apart(command)
        return {row["size"]: {"p50_us": row["p50_us"], "gb_s": row["gb_s"], "raw_us": row["limit_us"],
                              "raw_gb_s": row["limit_gb_s"]} for row in rows_of(output) if row["bench"] == "p2p"}

    def apart(self, command):
        """As started by hand, one in each network."""
        of = [self.network.inside(rank, "env", f"RANK={rank}", "WORLD_SIZE=2",
                                  f"MASTER_ADDR={self.network.addresses[0]}", f"MASTER_PORT={PORT}", *command)
              for rank in range(2)]
        with beside(of[1]):
            return run(of[0])


class beside:
    """A program that runs while something else is asked, and no longer."""

    def __init__(self, command, environment=None):
        self.child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                      env=os.environ | (environment or {}), start_new_session=True)

    def __enter__(self):
        return self.child

    def __exit__(self, *_):
        try:
            self.child.wait(5)
        except subprocess.TimeoutExpired:
            end(self.child)


class DriverOverTcp(OverTcp, Driver):
    def __init__(self, *arguments, network, **more):
        super().__init__(*arguments, **more)
        self.network = network

    def ranks(self, *words):
        """The words that start both: the library forks the second, which moves by itself (PEERS_FAR)."""
        return self.network.inside(0, self.program, *words)

    def messages(self, sizes, pings):
        self.build()
        output = run(self.ranks("p2p", ",".join(map(str, sizes)), str(self.options.inner_rounds), str(pings)),
                     self.environment)
        return {row["size"]: row for row in rows_of(output)}


class MpiOverTcp(DriverOverTcp):
    def ranks(self, *words):
        one = ["-n", "1", *self.network.inside(0, self.program, *words)]
        two = ["-n", "1", *self.network.inside(1, self.program, *words)]
        return self.network.inside(0, *self.launch, *one, ":", *two)


class Iperf(OverTcp):
    """One stream of bytes that are not even looked at: what a large message can reach."""

    name = "iperf3"
    package = "iperf3"
    compared = False
    streams_from = 1 << 20

    def __init__(self, options, network):
        self.options = options
        self.network = network

    def missing(self):
        return shutil.which("iperf3") is None

    def version(self):
        return version_in(["iperf3", "--version"])

    def messages(self, sizes, _):
        large = [size for size in sizes if size >= self.streams_from]
        if not large:
            return {}
        address = self.network.addresses[1]
        server = ["iperf3", "-s", "-1", "-p", str(PORT), "-B", address, "-A", "1"]
        client = ["iperf3", "-c", address, "-p", str(PORT), "-A", "0", "-t", "1", "-J"]
        with beside(self.network.inside(1, *server)) as child:
            speed = self.until_it_listens(child, self.network.inside(0, *client))
        return {size: {"gb_s": speed} for size in large}

    @staticmethod
    def until_it_listens(server, command):
        """GB/s of a client that the server has taken."""
        deadline = time.monotonic() + 10
        while True:
            try:
                answer = json.loads(run(command))
                if "sum_received" in answer.get("end", {}):
                    return answer["end"]["sum_received"]["bits_per_second"] / 8e9
                raise Failed(f"iperf3: {answer.get('error', 'no sum')}")
            except Failed:
                if time.monotonic() > deadline or server.poll() is not None:
                    raise
                time.sleep(0.1)


def ucx_tcp(network):
    return {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": network.devices, "UCX_WARN_UNUSED_ENV_VARS": "n",
            "UCX_LOG_LEVEL": "error", **moved(network)}


def moved(network):
    """How transport_ucx.c and transport_gloo.cpp find their places."""
    there = {"PEERS_ADDRESSES": ",".join(network.addresses)}
    return there if network.far is None else there | {"PEERS_FAR": network.far}


def of_tcp(program, options, network):
    make = {"network": network}
    subnet = "127.0.0.0/8" if network.far is None else "10.9.9.0/24"
    ours = [OursOverTcp(program, options, network), OursOverTcp(program, options, network, "epoll")]
    ucx = DriverOverTcp("UCX", "ucx", "libucx-dev", options, "transport_ucx.c", ["gcc", "-lucp", "-lucs"], [],
                        ["ucx_info", "-v"], ucx_tcp(network), **make)
    # What two ranks of one host would share is left out: a host is all that the namespaces have in common.
    over = ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", subnet]
    open_mpi = MpiOverTcp("Open MPI", "openmpi", "openmpi-bin libopenmpi-dev", options, "transport_mpi.c",
                          ["mpicc.openmpi"], [*plain_open_mpi(), *over], ["mpirun.openmpi", "--version"],
                          {"PMIX_MCA_ptl_tcp_if_include": subnet, "PMIX_MCA_gds": "hash"}, **make)
    mpich = MpiOverTcp("MPICH", "mpich", "mpich libmpich-dev", options, "transport_mpi.c", ["mpicc.mpich"], MPICH,
                       ["mpiexec.mpich", "--version"], {**ucx_tcp(network), "MPIR_CVAR_NOLOCAL": "1"}, **make)
    gloo = DriverOverTcp("Gloo", "gloo", "libgloo-dev", options, "transport_gloo.cpp",
                         ["gcc", "-lgloo", "-lstdc++", "-lpthread", "-lm"], [], ["dpkg-query", "-W", "libgloo-dev"],
                         moved(network), **make)
    return [*ours, ucx, open_mpi, mpich, gloo, Iperf(options, network)]


def plain_open_mpi():
    """Without its choice of a shared memory."""
    return OPEN_MPI[:OPEN_MPI.index("vader,self") - 2]
