#!/usr/bin/env python3
"""Jobs of nodes with a network each, joined by wires that delay, lose and reorder, and are cut one way.

usage: wire_test.py MWRUN WIRE LAUNCHED

By two seeds and some of the cuts, or by twenty and all where MANYWORLDS_TEST_LONG is set.
"""
import collections
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../launch"))
from jobs import CLEAN, agent_of, claim, is_gone, until
from one_etcd import Etcd  # noqa: E402
from own_network import WiredNetworks  # noqa: E402
from watched_program import ARGUMENTS, PROGRAM, claim_nothing_is_left, failures

WIRE, LAUNCHED = map(os.path.abspath, ARGUMENTS[:2])
IS_LONG = bool(os.environ.get("MANYWORLDS_TEST_LONG"))
SEEDS = range(1, 21 if IS_LONG else 3)
LIMIT = 60
BAD = {"delay": 5, "jitter": 3, "loss": 0.02, "reorder": 0.05}
PORT = 29400
# What is cut off is lost after this, and as much later as a busy machine may take.
LOST_AFTER = 1
IN_TIME = 15
# Each worker says what it is, and stays.
STAYS = 'echo "$NODE $RANK $WORLD_SIZE $MANYWORLDS_ATTEMPT $MANYWORLDS_INCARNATION $$" >> "$PLACES"; exec sleep 1000'
Place = collections.namedtuple("Place", "node rank size attempt incarnation pid")


class Job:
    """Nodes of one run, each in its network, and the places that their workers have said to have."""

    def __init__(self, networks, *options, backend="c10d", endpoint=None, words=("sh", "-c", STAYS), workers=1):
        self.networks = networks
        self.folder = tempfile.TemporaryDirectory()
        self.places_file = os.path.join(self.folder.name, "places")
        endpoint = endpoint or f"{networks.address(0)}:{PORT}"
        self.command = [PROGRAM, f"--rdzv-backend={backend}", f"--rdzv-endpoint={endpoint}", "--rdzv-id=job",
                        "--insecure", f"--nproc-per-node={workers}", *options, "--no-python", *words]
        self.nodes, self.sides, self.said, self.readers = [], [], [], []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for node in self.nodes:
            if node.poll() is None:
                node.kill()
            node.wait()
        for reader in self.readers:
            reader.join(LIMIT)
        for node in self.nodes:
            node.stdout.close()
        until(lambda: not self.living(), 10)
        self.folder.cleanup()

    def add(self, side):
        """Starts a node, and returns its number."""
        number = len(self.nodes)
        own = ["env", f"NODE={number}", *self.command]
        node = subprocess.Popen(self.networks.inside(side, *own), env={**CLEAN, "PLACES": self.places_file},
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, text=True)
        self.nodes.append(node)
        self.sides.append(side)
        self.said.append([])
        self.readers.append(threading.Thread(target=self.said[-1].extend, args=(node.stdout,), daemon=True))
        self.readers[-1].start()
        return number

    def places(self):
        if not os.path.exists(self.places_file):
            return []
        with open(self.places_file, encoding="ascii") as file:
            lines = [line.split() for line in file]
        return [Place(*map(int, line)) for line in lines if len(line) == 6]

    def living(self):
        return [each for each in self.places() if not is_gone(each.pid)]

    def stand(self, size, among=None):
        """Whether that many workers, of one attempt, run on these nodes."""
        alive = [each for each in self.living() if among is None or each.node in among]
        return sorted(each.rank for each in alive) == list(range(size)) and len({each.attempt for each in alive}) == 1

    def ended(self, limit=LIMIT):
        """The exit codes, or None where one does not end."""
        if not until(lambda: all(node.poll() is not None for node in self.nodes), limit):
            return None
        for reader in self.readers:
            reader.join(LIMIT)
        return [node.returncode for node in self.nodes]

    def text(self):
        return "\n".join(f"[{i}] " + "".join(said) for i, said in enumerate(self.said)) + f"\n{self.places()}"

    def holds_each_once(self):
        """Rule L-a: no incarnation of a rank was ever given to two processes."""
        counts = collections.Counter((e.attempt, e.rank, e.incarnation) for e in self.places())
        return max(counts.values(), default=0) == 1


def bad_wires(seed):
    """Jobs run and end over wires that lose packets."""
    nodes = 2 + seed % 2
    networks = WiredNetworks(WIRE, nodes, **BAD, seed=seed)
    try:
        with Job(networks, f"--nnodes={nodes}", words=[LAUNCHED, "sum"], workers=2) as job:
            for side in range(nodes):
                job.add(side)
            codes = job.ended()
            size = 2 * nodes
            sums = re.findall(rf"of {size}, local .*: the sum is {size * (size + 1) // 2}\n", job.text())
            claim(f"seed {seed}: {nodes} nodes run a job over wires that delay, lose and reorder",
                  codes == [0] * nodes and len(sums) == size, (codes, job.text()))
        with Job(networks, f"--nnodes={nodes}", "--max-restarts=1", workers=2) as job:
            for side in range(nodes):
                job.add(side)
            claim(f"seed {seed}: also workers that stay", until(lambda: job.stand(size), LIMIT), job.text())
            os.kill(job.living()[seed % size].pid, signal.SIGKILL)
            claim(f"seed {seed}: the failure of one starts all again, once",
                  until(lambda: job.stand(size) and job.living()[0].attempt == 1, LIMIT), job.text())
            os.kill(job.living()[seed % size].pid, signal.SIGKILL)
            codes = job.ended()
            claim(f"seed {seed}: and without restarts left all nodes fail with one root cause",
                  codes == [1] * nodes and job.holds_each_once() and
                  len(set(re.findall(r"Root Cause .*?\n.*?\n.*?\n.*?\n\s+rank +: (\d)", job.text(), re.S))) == 1,
                  (codes, job.text()))
        sent, lost, overtook = networks.counts()
        claim(f"seed {seed}: the wires have lost packets, and reordered some", lost > 0 and overtook > 0,
              (sent, lost, overtook))
        print(f"        {sent} packets, {lost} lost, {overtook} overtook others")
    finally:
        networks.remove()


CUTS = {"does not hear the others": lambda of, others: [(other, of) for other in others],
        "is not heard by the others": lambda of, others: [(of, other) for other in others],
        "is cut off both ways": lambda of, others: [pair for other in others for pair in ((of, other), (other, of))]}


def cut(networks, how, of):
    others = [side for side in range(len(networks.names)) if side != of]
    for sender, receiver in CUTS[how](of, others):
        networks.cut(sender, receiver)


# Of the scopes and cuts all are tried in the long form.
TRIED = ([(scope, how) for scope in ("group", "worker") for how in CUTS] if IS_LONG else
         [("group", "is not heard by the others"), ("worker", "does not hear the others"),
          ("worker", "is cut off both ways")])


def options_of(scope):
    # A first round of all nodes does not wait for it, however late the machine lets them come.
    return ["--nnodes=2", "--max-restarts=3", f"--agent-lost-after={LOST_AFTER}", f"--restart-scope={scope}",
            "--rdzv-conf=last_call_timeout=20"]


def cut_off(job, scope, how):
    """Cuts off a node that has a rank, and not the store. Returns its worker, and the nodes that are left."""
    what = f"{scope}: a node that {how}"
    claim(f"{what}: two of three nodes run before", until(lambda: job.stand(2), LIMIT), job.text())
    at_first = job.living()
    victim = max(at_first, key=lambda each: each.node)
    others = {0, 1, 2} - {victim.node}
    began = time.monotonic()
    cut(job.networks, how, victim.node)
    claim(f"L58 {what} is lost, and the spare has its rank",
          until(lambda: job.stand(2, others), LOST_AFTER + IN_TIME), job.text())
    print(f"        after {time.monotonic() - began:.1f} s, limit {LOST_AFTER} s")
    kept = [each for each in at_first if each.pid != victim.pid]
    claim(f"L-d {what}: the other worker is touched by the group's restart alone",
          all(is_gone(each.pid) == (scope == "group") for each in kept), job.text())
    return victim, others


def takes_over(job, who, others, what):
    """Kills the node of rank 1, so that the spare has it."""
    before = job.living()
    time.sleep(0.5)
    claim(f"L64 {what} is a spare", job.nodes[who].poll() is None and job.living() == before, job.text())
    of = next(each.node for each in before if each.node != 0)
    os.kill(agent_of(job.nodes[of].pid), signal.SIGKILL)
    claim(f"L64 {what} takes the ranks of the next that is lost",
          until(lambda: job.stand(2, (others | {who}) - {of}), LIMIT), job.text())
    claim(f"L-a {what}: no rank was given twice", job.holds_each_once(), job.text())


def one_way_cuts():
    """Over tcp a node that finds no coordinator ends within seconds, and may be started again."""
    for scope, how in TRIED:
        what = f"{scope}: a node that {how}"
        networks = WiredNetworks(WIRE, 3, delay=1)
        try:
            with Job(networks, *options_of(scope)) as job:
                for side in range(3):
                    job.add(side)
                victim, others = cut_off(job, scope, how)
                claim(f"L-a {what} ends its worker itself",
                      until(lambda of=victim: is_gone(of.pid), LOST_AFTER + IN_TIME), job.text())
                claim(f"L55 {what} ends with 1, and says why",
                      until(lambda of=victim: job.nodes[of.node].poll() == 1, IN_TIME) and
                      until(lambda of=victim: "the coordinator is gone" in "".join(job.said[of.node]), 5), job.text())
                networks.join()
                returned = job.add(job.sides[victim.node])
                takes_over(job, returned, others, f"{scope}: a node that {how}, and is started again")
        finally:
            networks.remove()


def coordinator_cut():
    """Of two nodes the one that coordinates and serves the store is cut off."""
    for how in CUTS if IS_LONG else ["is not heard by the others"]:
        networks = WiredNetworks(WIRE, 2, delay=1)
        try:
            with Job(networks, "--nnodes=1:2", "--max-restarts=2", f"--agent-lost-after={LOST_AFTER}",
                     "--rdzv-conf=last_call_timeout=2") as job:
                job.add(0)
                # So that it is the one that listens, and the other comes before the last call has gone.
                job.add(1)
                until(lambda job=job: job.stand(2), LIMIT)
                cut(networks, how, 0)
                claim(f"L55 where the coordinator {how} the other node ends with 1, and says what would outlive it",
                      until(lambda job=job: job.nodes[1].poll() == 1, LOST_AFTER + IN_TIME) and
                      until(lambda job=job: "etcd would have outlived" in "".join(job.said[1]), 5), job.text())
                claim(f"L58 the coordinator that {how} goes on alone", until(lambda job=job: job.stand(1, {0}), LIMIT),
                      job.text())
                claim("L-a and no other worker is left", until(lambda job=job: len(job.living()) == 1, IN_TIME) and
                      job.holds_each_once(), job.text())
        finally:
            networks.remove()


def returns_by_etcd():
    """With etcd a node that is cut off waits for the others, and is a spare when it hears them again."""
    for scope, how in TRIED if IS_LONG else [("worker", "is cut off both ways")]:
        what = f"{scope}: a node that {how}"
        networks = WiredNetworks(WIRE, 3, delay=1)
        etcd = None
        try:
            etcd = Etcd(networks.address(0), networks.inside(0))
            with Job(networks, *options_of(scope), backend="etcd", endpoint=etcd.endpoint) as job:
                for side in range(3):
                    job.add(side)
                victim, others = cut_off(job, scope, how)
                claim(f"L57 {what} is there still", job.nodes[victim.node].poll() is None, job.text())
                networks.join()
                claim(f"L-a {what} ends its worker when it hears that it was lost",
                      until(lambda of=victim: is_gone(of.pid), IN_TIME), job.text())
                takes_over(job, victim.node, others, f"{scope}: a node that {how}, and comes back")
        except FileNotFoundError as e:
            print(f"skipped: nodes that return by etcd: {e}")
            return
        finally:
            if etcd:
                etcd.end()
            networks.remove()


def main():
    try:
        WiredNetworks(WIRE, 2).remove()
    except OSError as e:
        print(f"skipped wires between networks: {e}")
        return
    for seed in SEEDS:
        bad_wires(seed)
    one_way_cuts()
    coordinator_cut()
    returns_by_etcd()
    claim_nothing_is_left()
    sys.exit(1 if failures else 0)


main()
