#!/usr/bin/env python3
"""A job of three hosts, each with a network of its own, of which one is cut off; etcd is on the first.

usage: networks_test.py MWGRAPH ROLE_USER WIRE
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

import remains
from several_hosts import LIMIT, MWGRAPH, Job, goal
from one_etcd import Etcd  # noqa: E402
from own_network import WiredNetworks  # noqa: E402

WIRE = os.path.abspath(sys.argv[3])
LEASE = 5
# How much later than its lease a standby may lead on a machine that is busy; the goal is 1 s.
LATE = 20

# Keeps what is said to the ports of its network, by connections that begin meanwhile; ends with its input.
KEEPER = """
import collections, json, select, socket, struct, sys
raw = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
own, flows = socket.inet_aton(sys.argv[1]), collections.defaultdict(dict)
print("listens", flush=True)
while sys.stdin not in (ready := select.select([raw, sys.stdin], [], [])[0]):
    packet = raw.recv(65536)
    if packet[9] != 6 or packet[16:20] != own:
        continue
    tcp = packet[(packet[0] & 15) * 4:struct.unpack("!H", packet[2:4])[0]]
    source, port, sequence = struct.unpack("!HHI", tcp[:8])
    text = tcp[(tcp[12] >> 4) * 4:]
    if tcp[13] & 2:
        flows[packet[12:16], source, port] = {"begin": sequence + 1}
    elif text and "begin" in (flow := flows[packet[12:16], source, port]):
        flow[(sequence - flow["begin"]) % 2**32] = text.hex()
told = []
for (_, _, port), flow in flows.items():
    flow.pop("begin", None)
    told.append([port, [flow[at] for at in sorted(flow)]])
json.dump(told, sys.stdout)
"""

# Says to a port what was kept, each part when the last one was answered.
REPEATER = """
import json, sys
sys.path.insert(0, sys.argv[1])
import strangers
for address, parts in json.load(sys.stdin):
    strangers.say(tuple(address), [bytes.fromhex(part) for part in parts])
"""


class Network:
    def __init__(self, networks):
        self.networks = networks
        self.job = self.keeper = None
        self.etcd = Etcd(networks.address(0), networks.inside(0))
        remains.begin(os.getcwd())
        with open("secret", "w", encoding="ascii") as file:
            file.write("5" * 64 + "\n")
        os.chmod("secret", 0o600)
        try:
            self.begin()
        except BaseException:
            self.end()
            raise

    def begin(self):
        networks = self.networks
        self.keeper = subprocess.Popen(networks.inside(1, sys.executable, "-c", KEEPER, networks.address(1)),
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.keeper.stdout.readline() == "listens\n"
        hosts = [networks.inside(side) for side in range(3)]
        self.job = Job(self.etcd, hosts, [networks.address(side) for side in range(3)],
                       ["--secret-file", os.path.abspath("secret")])

    def what_was_said(self):
        told, _ = self.keeper.communicate("", timeout=LIMIT)
        return json.loads(told)

    def repeat(self, said):
        """Repeats it from the host of etcd."""
        here = os.path.dirname(os.path.abspath(__file__))
        line = self.networks.inside(0, sys.executable, "-c", REPEATER, here)
        subprocess.run(line, input=json.dumps(said), text=True, check=True, timeout=LIMIT)

    @staticmethod
    def listening(program):
        """Returns the ports at which the network of a program has listeners."""
        with open(f"/proc/{program.pid}/net/tcp", encoding="ascii") as file:
            fields = [line.split() for line in file][1:]
        return {int(each[1].split(":")[1], 16) for each in fields if each[3] == "0A"}

    def end(self):
        if self.job:
            self.job.end()
        self.etcd.end()
        if self.keeper and self.keeper.poll() is None:
            self.keeper.kill()
            self.keeper.communicate()


def what_agents_have_said_is_refused_when_it_is_repeated(net):
    """graph B75: recorded words of this term and, after another master leads, of an old one."""
    job = net.job
    before = job.until_ready()
    said = net.what_was_said()
    agents = [parts for _, parts in said if len(parts) > 2]
    assert len(agents) >= 2, said
    net.said = agents
    net.repeat([[[net.networks.address(1), port], parts] for port, parts in said])
    assert job.until_ready() == before and job.status()["term"] == 1


def a_master_that_is_cut_off_is_followed_and_then_refused(net):
    """graph B67, G-a to G-c: by its standby, once its lease has ended; what lives is left alone."""
    job = net.job
    before, numbers = job.until_ready(), job.incarnations()
    old = job.masters[0]
    began = time.monotonic()
    for other in (0, 2):
        net.networks.cut(1, other)
        net.networks.cut(other, 1)
    # The one that is cut off does not hear of it until the cut has healed.
    os.kill(before["decode.1"], 9)
    job.until_term_above(1)
    took = time.monotonic() - began
    assert took < LEASE + LATE, took
    after = job.until_ready({"decode.1": before["decode.1"]})
    assert after == {**before, "decode.1": after["decode.1"]}
    net.networks.join()
    # What it still does is refused: it is given some time to do harm.
    time.sleep(2)
    assert job.pids() == after and job.status()["term"] == 2
    # It stands by, and leads when it is its turn.
    job.leads = 1
    job.kill_leader()
    job.until_term_above(2)
    assert old.poll() is None
    assert job.until_ready() == after
    assert job.incarnations() == {**numbers, "decode.1": numbers["decode.1"] + 1}
    return goal("another master led after", took, LEASE + 1)


def what_was_said_in_an_old_term_is_refused(net):
    """graph B75."""
    job = net.job
    before, term = job.until_ready(), job.status()["term"]
    for side, master in ((1, job.masters[0]), (2, job.masters[1])):
        ports = net.listening(master)
        net.repeat([[[net.networks.address(side), port], parts] for port in ports for parts in net.said])
    assert job.until_ready() == before and job.status()["term"] == term


def an_agent_that_others_reach_needs_a_secret(net):
    """graph B75: no agent beyond loopback without one."""
    job = net.job
    line = [*job.hosts[2], MWGRAPH, "agent", *job.where[:3], "--node", "c"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "--secret-file" in done.stderr, done


def the_job_ends_in_order(net):
    """graph B64, B75, G-f."""
    net.job.stop_in_order()
    remains.need_nothing()


def main():
    if not shutil.which("etcd"):
        print("skipped: etcd is not installed")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            networks = WiredNetworks(WIRE, 3, delay=1)
        except OSError as e:
            print(f"skipped: networks of their own cannot be made: {e}")
            return 77
        net = None
        try:
            net = Network(networks)
            for claim in (what_agents_have_said_is_refused_when_it_is_repeated,
                          a_master_that_is_cut_off_is_followed_and_then_refused,
                          what_was_said_in_an_old_term_is_refused, an_agent_that_others_reach_needs_a_secret,
                          the_job_ends_in_order):
                began = time.monotonic()
                said = claim(net)
                print(f"{claim.__name__.replace('_', ' ')}: {time.monotonic() - began:.1f} s {said or ''}", flush=True)
        except BaseException:
            if net:
                print(Job.said(), file=sys.stderr)
            raise
        finally:
            if net:
                net.end()
            networks.remove()
            remains.end_what_is_left(os.path.realpath(folder))
    return 0


sys.exit(main())
