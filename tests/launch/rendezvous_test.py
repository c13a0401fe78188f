#!/usr/bin/env python3
"""Nodes as processes agree on rounds over each real backend, while they are killed, stopped and told to go.

usage: rendezvous_test.py NODE
"""
import base64
import json
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request

from nodes import LIMIT, Node, case, conclude, end, places
from one_etcd import Etcd, free_port


# A first round of all nodes does not wait for it, however late the machine lets them come.
LAST_CALL_MS = 20000


def coordinator_of(nodes):
    found = [node for node in nodes if node.says("coordinates")]
    assert len(found) == 1, f"{len(found)} coordinate"
    return found[0]


def nodes_come_and_go(backend, endpoint):
    """R2, and what is left of a round when its node is killed, drained, or replaced."""
    run = f"come-and-go-{backend}"
    nodes = [Node(backend, endpoint, run, 2, 3, LAST_CALL_MS) for _ in range(3)]
    try:
        taken = sorted(places(nodes, 1, 3))
        assert taken == [0, 1, 2], taken
        coordinator = coordinator_of(nodes)
        others = [node for node in nodes if node is not coordinator]
        lost = others[0]
        place = int(lost.wait_for(r"round 1 .* place (\d+)").group(1))
        lost.kill()
        left = [coordinator, others[1]]
        places(left, 2, 2)
        assert all(node.says("change node_lost") for node in left), [node.lines for node in left]
        # The one that comes for it gets its place.
        fourth = Node(backend, endpoint, run, 2, 3, LAST_CALL_MS)
        nodes.append(fourth)
        taken = places([fourth], 3, 3)
        assert taken == [place], (taken, place)
        places(left, 3, 3)
        others[1].kill(signal.SIGTERM)
        others[1].wait_for("ended")
        places([coordinator, fourth], 4, 2)
        told = [node.lines for node in [coordinator, fourth]]
        assert all("change node_left" in lines for lines in told), told
        # R7: closed for all, and for one that comes later.
        fourth.kill(signal.SIGINT)
        coordinator.wait_for("change closed")
        fourth.wait_for("ended|change closed")
    finally:
        end(nodes)


def a_coordinator_is_followed(backend, endpoint):
    """R3: the coordinator is killed, and later its follower is stopped for longer than its lease."""
    run = f"followed-{backend}"
    nodes = [Node(backend, endpoint, run, 2, 3, LAST_CALL_MS) for _ in range(3)]
    try:
        places(nodes, 1, 3)
        first = coordinator_of(nodes)
        first.kill()
        left = [node for node in nodes if node is not first]
        places(left, 2, 2)
        nodes.append(Node(backend, endpoint, run, 2, 3, LAST_CALL_MS))
        places(left + [nodes[-1]], 3, 3)
    finally:
        end(nodes)


def too_few_end_in_time(backend, endpoint):
    """R6, R8: one of two waits for the join limit, and says how many are there."""
    node = Node(backend, endpoint, f"too-few-{backend}", 2, 2, 0, 1500)
    try:
        node.wait_for(r"error .*no round within 1.5 s: 1 of at least 2 nodes")
    finally:
        end([node])


def ask(etcd, what, key, end=b""):
    asked = {"key": base64.b64encode(key).decode(), "range_end": base64.b64encode(end).decode()}
    request = urllib.request.Request(f"http://{etcd.endpoint}/v3/kv/{what}", json.dumps(asked).encode())
    with urllib.request.urlopen(request, timeout=LIMIT) as answer:
        return json.load(answer)


def keys_of(etcd, run):
    """The keys that stand in etcd for a run, each with its lease."""
    prefix = f"manyworlds/rendezvous/{run}/".encode()
    found = ask(etcd, "range", prefix, prefix[:-1] + bytes([prefix[-1] + 1])).get("kvs", [])
    return {base64.b64decode(each["key"]).decode()[len(prefix):]: int(each.get("lease", 0)) for each in found}


def etcd_is_left_clean(etcd):
    """E6: two runs do not mix, and one that crashed is taken up. E9: all keys have a lease, and end with the run."""
    pairs = {run: [Node("etcd", etcd.endpoint, run, 2, 2) for _ in range(2)] for run in ("one", "two")}
    everyone = [node for pair in pairs.values() for node in pair]
    try:
        for pair in pairs.values():
            assert sorted(places(pair, 1, 2)) == [0, 1]
        keys = keys_of(etcd, "one")
        assert "round" in keys and all(keys.values()), keys
        for node in pairs["one"]:
            node.kill(signal.SIGUSR1)
        for node in pairs["one"]:
            node.wait_for("^ended")
        until = time.monotonic() + LIMIT
        while {"round", "coordinator"} & keys_of(etcd, "one").keys() and time.monotonic() < until:
            time.sleep(0.05)
        # An agent that was looking for a coordinator when it ended leaves its entry for as long as its lease.
        keys = keys_of(etcd, "one")
        assert not {"round", "coordinator"} & keys.keys() and all(keys.values()), keys
        for node in pairs["two"]:
            node.kill()
        successors = [Node("etcd", etcd.endpoint, "two", 2, 2) for _ in range(2)]
        everyone += successors
        assert sorted(places(successors, 2, 2)) == [0, 1]
        successors[0].kill(signal.SIGINT)
        for node in successors:
            node.wait_for("ended|change closed")
        late = Node("etcd", etcd.endpoint, "two", 2, 2)
        everyone.append(late)
        late.wait_for("error .*closed")
        keys = keys_of(etcd, "two")
        assert keys.pop("closed") == 0 and all(keys.values()), keys
    finally:
        end(everyone)


def a_seat_is_freed_under_a_living_coordinator(etcd):
    """As by an agent that takes it for dead since its own connection was cut. There are no two for long."""
    nodes = [Node("etcd", etcd.endpoint, "freed", 3, 3) for _ in range(3)]
    try:
        places(nodes, 1, 3)
        seat = keys_of(etcd, "freed")["coordinator"]
        ask(etcd, "deleterange", b"manyworlds/rendezvous/freed/coordinator")
        until = time.monotonic() + LIMIT
        while keys_of(etcd, "freed").get("coordinator", seat) == seat and time.monotonic() < until:
            time.sleep(0.02)
        # All meet at the one that holds it now.
        nodes[0].kill()
        nodes.append(Node("etcd", etcd.endpoint, "freed", 3, 3))
        taken = sorted(places(nodes[1:], 2, 3))
        assert taken == [0, 1, 2], taken
    finally:
        end(nodes)


def clocks_differ(backend, endpoint):
    """R5, L56: each node has a clock of its own, ten minutes apart; steady clocks are what nodes look at."""
    apart = [("unshare", "-T", "-f", "--kill-child", "--monotonic", str(offset), "--boottime", str(offset))
             for offset in (600, 0, 1200)]
    nodes = [Node(backend, endpoint, f"clocks-{backend}", 2, 3, LAST_CALL_MS, through=each) for each in apart]
    try:
        assert sorted(places(nodes, 1, 3)) == [0, 1, 2]
        lost = next(node for node in nodes if not node.says("coordinates"))
        lost.kill()
        places([node for node in nodes if node is not lost], 2, 2)
    finally:
        end(nodes)


def has_time_namespaces():
    return subprocess.run(["unshare", "-T", "-f", "--monotonic", "600", "true"], stderr=subprocess.DEVNULL,
                          check=False).returncode == 0


def what_is_no_backend_is_named():
    """What answers at the endpoint, or does not, stands in the error; bad options name themselves."""
    with socket.socket() as web:
        web.bind(("127.0.0.1", 0))
        web.listen()
        threading.Thread(target=answer_as_web, args=[web], daemon=True).start()
        at = f"127.0.0.1:{web.getsockname()[1]}"
        nodes = [(Node("tcp", at, "no-store", 1, 1, 0, 1500), rf"error .*no coordinator was found.*{at}"),
                 (Node("etcd", at, "no-etcd", 1, 1, 0, 1500), rf"error .*no coordinator was found.*{at} is no etcd"),
                 (Node("etcd", "127.0.0.1:1", "none", 1, 1, 0, 1500), "error .*no coordinator was found.*127.0.0.1:1"),
                 (Node("file", "", "run", 1, 1, 0, 1500), "failed .*file needs a folder"),
                 (Node("file", "/dev/null", "..", 1, 1, 0, 1500), 'error .*the run id ".."'),
                 (Node("tcp", at, "a" * 5000, 1, 1, 0, 1500), '^.{,200}$')]
        try:
            for node, words in nodes:
                node.wait_for(words)
        finally:
            end([node for node, _ in nodes])


def answer_as_web(listener):
    try:
        while True:
            connection, _ = listener.accept()
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            connection.close()
    except OSError:
        pass


def main():
    with tempfile.TemporaryDirectory() as folder:
        backends = [("tcp", f"127.0.0.1:{free_port()}"), ("file", folder)]
        etcd = None
        if shutil.which("etcd"):
            etcd = Etcd()
            backends.append(("etcd", etcd.endpoint))
        else:
            print("skipped: rendezvous over etcd (Debian: apt-get install etcd-server)")
        try:
            if etcd:
                case("etcd is left clean", lambda: etcd_is_left_clean(etcd))
                case("etcd: a seat is freed under a living coordinator",
                     lambda: a_seat_is_freed_under_a_living_coordinator(etcd))
            for backend, endpoint in backends:
                case(f"{backend}: nodes come and go", lambda: nodes_come_and_go(backend, endpoint))
                case(f"{backend}: too few end in time", lambda: too_few_end_in_time(backend, endpoint))
                # Over tcp no other host's agent can follow; one of the same host is another matter.
                case(f"{backend}: a coordinator is followed", lambda: a_coordinator_is_followed(backend, endpoint))
                if has_time_namespaces():
                    case(f"{backend}: clocks differ", lambda: clocks_differ(backend, endpoint))
            if not has_time_namespaces():
                print("skipped: clocks that differ (a time namespace cannot be made here)")
            case("standalone: several nodes meet at the endpoint",
                 lambda: too_few_end_in_time("standalone", f"127.0.0.1:{free_port()}"))
            case("what is no backend is named", what_is_no_backend_is_named)
        finally:
            if etcd:
                etcd.end()
    conclude()


main()
