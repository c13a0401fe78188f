"""UCX's own benchmark."""

import os
import shutil
import socket
import subprocess
import time

from contestants import UCX_SHM, ucx_environment
from programs import Failed, end, run, version_in

IN_FLIGHT = 4


class Counts:
    """As mwbench and driver.c reckon them, for programs that must be told."""

    def __init__(self, size, most):
        self.pings = min(max((64 << 20) // size, 2), most)
        self.messages = IN_FLIGHT * min(max((128 << 20) // size // IN_FLIGHT, 2), most)


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

    def version(self):
        return version_in(["ucx_info", "-v"])

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
