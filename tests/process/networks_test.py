#!/usr/bin/env python3
"""An example over two networks joined by a cable, as on two machines: the cable is cut in place of a kill, and mended.

usage: networks_test.py PROGRAM

Needs the right to make network namespaces.
"""
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

from own_network import TwoNetworks
from watched_program import PROGRAM, claim, claim_nothing_is_left, failures

NAME = os.path.basename(PROGRAM)
LIMIT = 40
HERE, THERE = 0, 1


class Run:
    """One process in one of the two networks."""

    def __init__(self, networks, side, *arguments):
        self.seen = ""
        self.process = subprocess.Popen(networks.inside(side, PROGRAM, *arguments), stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True)
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.seen += line

    def claim_says(self, what, pattern, since=0):
        until = time.monotonic() + LIMIT
        while time.monotonic() < until:
            if found := re.search(pattern, self.seen[since:]):
                claim(what, True)
                return since + found.end()
            if self.process.poll() is not None and not self.reader.is_alive():
                break
            time.sleep(0.01)
        claim(what, False, self.seen[-1500:])
        return len(self.seen)

    def end(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.reader.join()


def send_recv(start, networks, common):
    leader = start(HERE, "--worldinfo", "1,0", "--worldinfo", "2,0", *common)
    start(THERE, "--worldinfo", "1,1", "--pause", "0.1", *common)
    start(HERE, "--worldinfo", "2,1", "--pause", "0.1", *common)
    leader.claim_says("it receives from the other network", "received .* in world1")
    leader.claim_says("and from its own", "received .* in world2")
    networks.cut()
    seen = leader.claim_says("it says that the other is cut off", "rank 0: world1@1 broken: rank 1 ")
    leader.claim_says("the other world goes on", r"(?s)(received .* in world2.*){10}", seen)
    claim("the other world did not break", "world2@1 broken" not in leader.seen)
    networks.mend()
    leader.claim_says("mended, it receives from there again", "(?s)world1@[2-9].* is up.*received .* in world1", seen)


def all_reduce(start, networks, common):
    common = [*common, "--pause", "0.1", "--print-every", "10"]
    zero = start(HERE, "--worldinfo", "1,0", "--worldinfo", "2,0", *common)
    near = start(HERE, "--worldinfo", "1,1", *common)
    far = start(THERE, "--worldinfo", "1,2", *common)
    start(HERE, "--worldinfo", "2,1", *common)
    start(HERE, "--worldinfo", "2,2", *common)
    zero.claim_says("sums come from both networks", "world1 rank 0 step 10:")
    networks.cut()
    for who, run in (("rank 0", zero), ("rank 1", near)):
        run.claim_says(f"{who} says that rank 2 is cut off", f"world1 {who} caught an error: world1@1 broken: rank 2 ")
    far.claim_says("and rank 2 that it is", "world1 rank 2 caught an error: world1@1 broken: rank [01] ")
    zero.claim_says("the other world takes all its steps", "world2 rank 0 step 100:")


def dispatch(start, networks, common):
    leader = start(HERE, "--role", "leader", *common)
    near = start(HERE, "--role", "worker", *common)
    far = start(THERE, "--role", "worker", *common)
    for worker in (near, far):
        leader.claim_says("a worker comes", f"worker {worker.process.pid} has come")
    leader.claim_says("both work", r"2 workers, [1-9]\d* requests")
    networks.cut()
    seen = leader.claim_says("the worker that is cut off is gone", f"worker {far.process.pid} is gone: ")
    answered = int(re.findall(r"(\d+) requests answered", leader.seen)[-1])
    seen = leader.claim_says("the other goes on", "(?s)(1 workers, .*){2}", seen)
    claim("requests are answered", int(re.findall(r"(\d+) requests answered", leader.seen)[-1]) > answered)
    claim("the other is not gone", f"worker {near.process.pid} is gone" not in leader.seen)
    networks.mend()
    leader.claim_says("mended, it comes again", f"worker {far.process.pid} has come", seen)


def main():
    try:
        networks = TwoNetworks()
    except OSError as e:
        print(f"no network namespaces joined by veth here: {e}")
        return 77
    runs = []

    def start(side, *arguments):
        runs.append(Run(networks, side, *arguments))
        return runs[-1]

    with tempfile.NamedTemporaryFile("w") as secret:
        secret.write("a secret of this test\n")
        secret.flush()
        where = ["--store", "10.9.9.1:29500"] if NAME == "dispatch" else ["--addr", "10.9.9.1"]
        try:
            refused = subprocess.run(
                networks.inside(HERE, PROGRAM, *(["--role", "leader"] if NAME == "dispatch" else ["--worldinfo", "1,0"]),
                                *where), capture_output=True, text=True, timeout=LIMIT)
            claim("beyond loopback a secret is asked for", refused.returncode == 1 and "--secret-file" in refused.stderr,
                  refused.stderr)
            globals()[NAME](start, networks, [*where, "--secret-file", secret.name])
        finally:
            for run in runs:
                run.end()
            networks.remove()
    claim_nothing_is_left()
    return bool(failures)


sys.exit(main())
