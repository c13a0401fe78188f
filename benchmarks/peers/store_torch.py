"""What store.py asks of PyTorch's TCPStore, given to its interpreter as text, since that may see other files:

serve                           prints where it listens, and serves until it is ended
ask HOST PORT COUNT SIZE        the operations of `mwbench store`
crowd HOST PORT CLIENTS         that many clients connect, and meet
version"""

import datetime
import json
import socket
import sys
import time

import torch
from torch.distributed import TCPStore

LIMIT = datetime.timedelta(seconds=60)


def store(host, port, serves=False):
    """As PyTorch makes it by default; Debian's builds lack libuv, and have to be told."""
    for more in ({}, {"use_libuv": False}):
        try:
            return TCPStore(host, port, is_master=serves, timeout=LIMIT, wait_for_workers=False, **more)
        except (RuntimeError, ValueError) as error:
            if "libuv" not in str(error):
                raise
    raise RuntimeError("this PyTorch has no TCPStore")


def say(**row):
    print(json.dumps(row), flush=True)


def serve():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    held = store("127.0.0.1", port, serves=True)
    say(address=f"127.0.0.1:{port}")
    time.sleep(3600)
    del held


def timed(operation, count, do):
    took = []
    for i in range(-(count // 10), count):
        begin = time.perf_counter_ns()
        do(i)
        # The first of them warm the server.
        if i >= 0:
            took.append((time.perf_counter_ns() - begin) / 1e3)
    took.sort()
    say(operation=operation, p50_us=took[len(took) // 2], p99_us=took[len(took) * 99 // 100])


def ask(host, port, count, size):
    client = store(host, int(port))
    count, value = int(count), "v" * int(size)
    # What is cheapest of the calls that wait for an answer: one round trip.
    answered = (lambda: client.check(["bench/set"])) if hasattr(client, "check") else client.num_keys
    client.set("bench/key", value)
    timed("get", count, lambda i: client.get("bench/key"))

    def set_acknowledged(i):
        client.set("bench/set", value)
        answered()

    timed("set", count, set_acknowledged)
    timed("set, unanswered", count, lambda i: client.set("bench/set", value))
    answered()
    timed("add", count, lambda i: client.add("bench/add", 1))
    if hasattr(client, "check"):
        timed("check", count, lambda i: client.check(["bench/key"]))
    state = {"before": ""}

    def compare_set(i):
        after = f"{i} {value}"
        client.compare_set("bench/compare", state["before"], after)
        state["before"] = after

    timed("compare_set", count, compare_set)


def crowd(host, port, clients):
    """One after the other, as one thread makes them: threads would wait for Python's lock."""
    clients = int(clients)
    begin = time.perf_counter_ns()
    everyone = []
    for _ in range(clients):
        everyone.append(store(host, int(port)))
        if everyone[-1].add("bench/met", 1) == clients:
            everyone[-1].set("bench/all", "met")
    for each in everyone:
        each.wait(["bench/all"], LIMIT)
    say(operation="connect and barrier", clients=clients, took_ms=(time.perf_counter_ns() - begin) / 1e6)


def version():
    say(version=torch.__version__)


{"serve": serve, "ask": ask, "crowd": crowd, "version": version}[sys.argv[1]](*sys.argv[2:])
