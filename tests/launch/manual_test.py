#!/usr/bin/env python3
"""Nodes that were given their places meet, also with torchrun's agents among them (P10).

usage: manual_test.py NODE MWSTORE

An agent of torchrun is played by its bytes and keys (torch 2.6.0, elastic/agent/server/api.py and utils/store.py).
Where MANYWORLDS_TEST_LONG is set, torchrun itself takes part; MANYWORLDS_TORCHRUN is its command.
"""
import json
import os
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time

from nodes import LIMIT, Node, case, conclude, end, places
from one_etcd import free_port

MWSTORE = sys.argv[2]


def connected(port):
    """The store may not be served yet."""
    until = time.monotonic() + LIMIT
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), LIMIT)
        except ConnectionRefusedError:
            assert time.monotonic() < until, "no store listens"
            time.sleep(0.02)


class Store:
    """A client in PyTorch's modern dialect."""

    def __init__(self, port):
        self.line = connected(port)
        self.line.settimeout(LIMIT)
        self.line.sendall(bytes.fromhex("00ce f785 3c") + b"\x0d" + struct.pack("<I", 4711))
        assert self.take("<I") == 4711, "no pong"

    def take(self, form):
        return struct.unpack(form, self.bytes(struct.calcsize(form)))[0]

    def bytes(self, count):
        got = b""
        while len(got) < count:
            more = self.line.recv(count - len(got))
            assert more, "the store has closed the connection"
            got += more
        return got

    @staticmethod
    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()

    def set(self, key, value):
        self.line.sendall(b"\x01" + self.text("/" + key) + self.text(value))

    def get(self, key):
        self.wait(key)
        self.line.sendall(b"\x03" + self.text("/" + key))
        return self.bytes(self.take("<Q")).decode()

    def wait(self, key):
        self.line.sendall(b"\x06" + struct.pack("<Q", 1) + self.text("/" + key))
        assert self.take("<B") == 0, "the wait was cancelled"

    def add(self, raw_key, delta):
        self.line.sendall(b"\x04" + self.text(raw_key) + struct.pack("<q", delta))
        return self.take("<q")


class TorchrunsAgent:
    """Node `rank` of `size`, by torchrun's backend "static": its ranks, and the barrier at its end."""

    def __init__(self, port, run, rank, size, slots=2):
        self.store, self.keys, self.rank, self.size = Store(port), f"{run}/torchelastic/", rank, size
        self.ranks = None
        count = self.store.add("init/", 1)
        # The one that hosts the store waits for all.
        while rank == 0 and count < size:
            count = self.store.add("init/", 0)
        role = {"role": "default", "rank": rank, "local_world_size": slots}
        self.store.set(f"{self.keys}role_info/{rank}", json.dumps(role))

    def assign(self):
        roles = [json.loads(self.store.get(f"{self.keys}role_info/{i}")) for i in range(self.size)]
        total = sum(role["local_world_size"] for role in roles)
        first = 0
        for i, role in enumerate(roles):
            self.store.set(f"{self.keys}assigned_ranks/{i}", json.dumps([first, total, first, total]))
            first += role["local_world_size"]

    def place(self):
        if self.rank == 0:
            self.assign()
        return json.loads(self.store.get(f"{self.keys}assigned_ranks/{self.rank}"))

    def finish(self):
        if self.store.add(f"/{self.keys}agent/terminal_state/num_members", 1) == self.size:
            self.store.set(f"{self.keys}agent/terminal_state/last_member", "<val_ignored>")
        self.store.wait(f"{self.keys}agent/terminal_state/last_member")


class Served:
    def __init__(self, port):
        self.process = subprocess.Popen([MWSTORE, "serve", "--listen", f"127.0.0.1:{port}"], stdout=subprocess.PIPE,
                                        text=True)
        assert self.process.stdout.readline(), "mwstore serves nothing"


def manual(port, run, rank, size):
    return Node("manual", f"127.0.0.1:{port}", run, size, size, 0, rank=rank)


def nodes_have_the_places_they_were_given():
    port = free_port()
    nodes = [manual(port, "given", rank, 3) for rank in (2, 1, 0)]
    try:
        taken = places(nodes, 1, 3)
        assert taken == [2, 1, 0], taken
        assert nodes[2].says("coordinates")
        twice = manual(port, "given", 1, 3)
        nodes.append(twice)
        twice.wait_for(r"error .*node rank 1 is that of node \w+ on 127\.0\.0\.1")
        placeless = Node("tcp", f"127.0.0.1:{port}", "given", 3, 3, 0)
        nodes.append(placeless)
        placeless.wait_for("error .*nodes of run given are given their places")
        nodes[1].kill()
        nodes[0].wait_for("change node_lost")
        nodes.append(manual(port, "given", 1, 3))
        taken = places([nodes[-1], nodes[0], nodes[2]], 2, 3)
        assert taken == [1, 2, 0], taken
        for node in (nodes[0], nodes[2], nodes[-1]):
            node.kill(signal.SIGUSR1)
        for node in (nodes[0], nodes[2], nodes[-1]):
            node.wait_for("^ended")
    finally:
        end(nodes)


def node_0_is_started_again():
    """Its store is gone with it, and the others tell its successor all."""
    port = free_port()
    nodes = [manual(port, "again", rank, 3) for rank in range(3)]
    try:
        places(nodes, 1, 3)
        nodes[0].kill()
        nodes.append(manual(port, "again", 0, 3))
        taken = places([nodes[3], nodes[1], nodes[2]], 2, 3)
        assert taken == [0, 1, 2], taken
        assert nodes[1].says("change node_lost")
        for node in nodes[1:]:
            node.kill(signal.SIGUSR1)
        for node in nodes[1:]:
            node.wait_for("^ended")
    finally:
        end(nodes)


def a_node_that_was_given_no_place_is_refused():
    port = free_port()
    nodes = [manual(port, "mixed", 0, 3)]
    try:
        time.sleep(0.3)
        nodes.append(Node("tcp", f"127.0.0.1:{port}", "mixed", 3, 3, 0))
        nodes[1].wait_for("error .*place")
        nodes += [manual(port, "mixed", rank, 3) for rank in (1, 2)]
        taken = places([nodes[0], nodes[2], nodes[3]], 1, 3)
        assert taken == [0, 1, 2], taken
    finally:
        end(nodes)


def one_node_alone():
    port = free_port()
    node = manual(port, "alone", 0, 1)
    try:
        assert places([node], 1, 1) == [0]
        node.kill(signal.SIGUSR1)
        node.wait_for("^ended")
    finally:
        end([node])


def torchruns_agent_is_node_1():
    port = free_port()
    node = manual(port, "torch1", 0, 2)
    try:
        agent = TorchrunsAgent(port, "torch1", 1, 2, slots=3)
        ranks = agent.place()
        assert ranks == [2, 5, 2, 5], ranks
        assert places([node], 1, 2) == [0]
        node.wait_for("rank 0 of 5 coordinates")
        # Each waits for the other at the end.
        node.kill(signal.SIGUSR1)
        agent.finish()
        node.wait_for("^ended")
    finally:
        end([node])


def a_node_counts_once_at_the_end():
    """One that gave up its wait for torchrun's, and waits again, is not two."""
    port = free_port()
    node = manual(port, "once", 0, 2)
    try:
        agent = TorchrunsAgent(port, "once", 1, 2)
        agent.place()
        places([node], 1, 2)
        node.kill(signal.SIGUSR2)
        count = f"/{agent.keys}agent/terminal_state/num_members"
        until = time.monotonic() + 1
        while time.monotonic() < until:
            counted = agent.store.add(count, 0)
            assert counted <= 1, counted
            time.sleep(0.05)
        assert counted == 1
        agent.finish()
        node.wait_for("^ended")
    finally:
        end([node])


def torchruns_agent_is_node_0():
    port = free_port()
    served = Served(port)
    nodes = [manual(port, "torch0", rank, 3) for rank in (2, 1)]
    try:
        agent = TorchrunsAgent(port, "torch0", 0, 3)
        ranks = agent.place()
        assert ranks == [0, 6, 0, 6], ranks
        taken = places(nodes, 1, 3)
        assert taken == [2, 1], taken
        nodes[0].wait_for("rank 4 of 6")
        nodes[1].wait_for("rank 2 of 6 coordinates")
        nodes[0].kill()
        nodes[1].wait_for("change node_lost")
        nodes.append(manual(port, "torch0", 2, 3))
        taken = places(nodes[1:], 2, 3)
        assert taken == [1, 2], taken
        for node in nodes[1:]:
            node.kill(signal.SIGUSR1)
        agent.finish()
        for node in nodes[1:]:
            node.wait_for("^ended")
    finally:
        end([*nodes, served])


def what_torchrun_says_must_make_sense():
    port = free_port()
    served = Served(port)
    node = manual(port, "nonsense", 1, 2)
    try:
        Store(port).set("nonsense/torchelastic/role_info/0", "a pickled object")
        node.wait_for("error .*what node 0 says of itself is no JSON object with its rank")
    finally:
        end([node, served])


def another_is_at_the_endpoint():
    port = free_port()
    served = Served(port)
    node = manual(port, "taken", 0, 2)
    try:
        node.wait_for(rf"error .*node 0 serves the store\. .*{port}.*mwstore")
    finally:
        end([node, served])


def torchrun_itself(words, rank):
    port = free_port()
    run = f"real{rank}"
    others = [manual(port, run, 1 - rank, 2)]
    command = [*words, "--no-python", "--nnodes", "2", "--node-rank", str(rank), "--master-addr", "127.0.0.1",
               "--master-port", str(port), "--rdzv-id", run, "--nproc-per-node", "2", "sh", "-c",
               "echo rank $RANK of $WORLD_SIZE"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               start_new_session=True)
    try:
        places(others, 1, 2)
        others[0].wait_for(rf"rank {2 - 2 * rank} of 4")
        others[0].kill(signal.SIGUSR1)
        out, _ = process.communicate(timeout=60)
        ranks = sorted(int(r) for r in re.findall(r"rank (\d) of 4", out))
        assert process.returncode == 0 and ranks == [2 * rank, 2 * rank + 1], (process.returncode, out)
        others[0].wait_for("^ended")
    finally:
        end(others)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def main():
    case("R2 manual: nodes have the places that they were given", nodes_have_the_places_they_were_given)
    case("R3 manual: node 0 is started again", node_0_is_started_again)
    case("manual: a node that was given no place is refused", a_node_that_was_given_no_place_is_refused)
    case("manual: one node alone", one_node_alone)
    case("P10 an agent of torchrun is node 1", torchruns_agent_is_node_1)
    case("P10 a node counts once at the end", a_node_counts_once_at_the_end)
    case("P10 an agent of torchrun is node 0", torchruns_agent_is_node_0)
    case("what torchrun says of itself must make sense", what_torchrun_says_must_make_sense)
    case("another program at node 0's endpoint is named", another_is_at_the_endpoint)
    words = shlex.split(os.environ.get("MANYWORLDS_TORCHRUN", "torchrun"))
    if not os.environ.get("MANYWORLDS_TEST_LONG"):
        print("skipped: torchrun itself, which runs where MANYWORLDS_TEST_LONG is set (tests/run.sh --full)")
    elif not shutil.which(words[0]):
        print("skipped: torchrun itself (pip install torch, or MANYWORLDS_TORCHRUN names it)")
    else:
        case("P10 torchrun itself is node 0", lambda: torchrun_itself(words, 0))
        case("P10 torchrun itself is node 1", lambda: torchrun_itself(words, 1))
    conclude()


main()
