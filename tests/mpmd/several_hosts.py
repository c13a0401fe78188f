"""A job of two nodes with two masters, for tests: its context and its meeting are in etcd."""
import base64
import glob
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

for folder in ("launch", "process"):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", folder))

MWGRAPH, ROLE_USER = (os.path.abspath(path) for path in sys.argv[1:3])
LIMIT = 60  # of each wait, on a machine that is busy

import remains  # noqa: E402
from one_host import goal, lives  # noqa: E402, F401

GRAPH = f"""\
name = "kept"
[role.prefill]
run = ["{ROLE_USER}"]
ready = "told"
[role.decode]
run = ["{ROLE_USER}"]
count = 2
ready = "told"
[edge.kv]
from = "prefill"
to = "decode"
shape = "pairs"
"""


def until(condition, why):
    end = time.monotonic() + LIMIT
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < end, why() if callable(why) else why
        time.sleep(0.05)


class Job:
    """`hosts` are the commands that run words on the host of etcd and node "a", of the first, and of the second
    master; node "b" is on the last one."""

    def __init__(self, etcd, hosts=([], [], []), addresses=("127.0.0.1",) * 3, secret=("--insecure",),
                 more=""):
        self.etcd = etcd
        self.hosts = hosts
        self.addresses = addresses
        self.where = ["kept", "--store", f"etcd://{etcd.endpoint}", *secret]
        with open("kept.toml", "w", encoding="utf-8") as file:
            file.write(GRAPH + more)
        self.count = 3 + more.count("[role.")
        self.all = []
        self.masters = [self.master(0)]
        # So that it is known which one leads at first.
        until(lambda: self.status()["term"] == 1, self.said)
        self.leads = 0
        self.masters.append(self.master(1))
        self.agents = {node: self.start(host, "agent", "--node", node, "--log-dir", f"logs-{node}")
                       for node, host in (("a", 0), ("b", 2))}

    def start(self, host, *words):
        out = open("all.out", "a", encoding="utf-8")
        line = [*self.hosts[host], MWGRAPH, words[0], *self.where, *words[1:]]
        one = subprocess.Popen(line, stdout=out, stderr=out)
        out.close()
        self.all.append(one)
        return one

    def master(self, number):
        return self.start(number + 1, "master", "--context", f"etcd://{self.etcd.endpoint}", "--graph", "kept.toml",
                          "--nodes", "2", "--listen", f"{self.addresses[number + 1]}:0")

    def kill_leader(self):
        """Kills the master that leads, and starts another one in its place, which will stand by."""
        self.masters[self.leads].kill()
        self.masters[self.leads].wait(LIMIT)
        self.masters[self.leads] = self.master(self.leads)
        self.leads = 1 - self.leads

    @staticmethod
    def said():
        with open("all.out", encoding="utf-8") as file:
            return file.read()

    def ask(self, command, *more, limit=LIMIT, secret=True):
        line = [*self.hosts[0], MWGRAPH, command, *(self.where if secret else self.where[:3]), *more]
        return subprocess.run(line, capture_output=True, text=True, timeout=limit)

    def status(self):
        done = self.ask("status", "--json")
        return json.loads(done.stdout) if done.returncode == 0 else {"stage": "?", "instances": [], "term": 0}

    def until_term_above(self, term):
        until(lambda: self.status()["term"] > term, lambda: f"term {term} goes on: {self.status()}\n{self.said()}")

    def pids(self):
        return {i["instance"]: i["pid"] for i in self.status()["instances"] if i.get("life") == "ready"}

    def incarnations(self):
        return {i["instance"]: i["incarnation"] for i in self.status()["instances"]}

    def until_ready(self, other_than=None):
        def ready():
            pids = self.pids()
            others = all(pids.get(k) != v for k, v in (other_than or {}).items())
            return pids if len(pids) == self.count and others else None
        pids = until(ready, lambda: f"{self.status()}\n{self.said()}")
        remains.look()
        return pids

    @staticmethod
    def rounds(instance):
        """Returns how many rounds its edges have made, as its last incarnation has printed."""
        log = max(glob.glob(f"logs-*/{instance}/*.log"), key=lambda path: int(os.path.basename(path)[:-4]))
        with open(log, encoding="utf-8") as file:
            told = [line.split()[1] for line in file if line.startswith("rounds ") and line.endswith("\n")]
        return int(told[-1]) if told else 0

    def etcd_says(self, call, **asked):
        request = urllib.request.Request(f"http://{self.etcd.endpoint}/v3/{call}", json.dumps(asked).encode())
        # A proxy of the environment does not lead to loopback.
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(request, timeout=LIMIT) as answer:
            return json.load(answer)

    def seat(self):
        """Returns the name of the master that has the seat, and the lease that it has it by; nothing if it is free."""
        key = base64.b64encode(b"manyworlds/graph/kept/seat").decode()
        found = self.etcd_says("kv/range", key=key).get("kvs", [])
        return (base64.b64decode(found[0]["value"]).decode(), found[0].get("lease", "0")) if found else None

    def revoke_seat(self):
        """Takes the lease from the master that has the seat, and returns whether there was one."""
        seat = self.seat()
        if not seat or seat[1] == "0":
            return False
        try:
            self.etcd_says("lease/revoke", ID=seat[1])
        except urllib.error.HTTPError:
            return False  # It has ended meanwhile.
        return True

    def keys(self):
        """Returns how many keys etcd has, where this job is the only one that uses it."""
        first, last = (base64.b64encode(key).decode() for key in (b"manyworlds/", b"manyworlds0"))
        return int(self.etcd_says("kv/range", key=first, range_end=last, count_only=True).get("count", 0))

    def erase_all(self):
        """Erases it by hand while it runs, its seat with it."""
        first, last = (base64.b64encode(key).decode() for key in (b"manyworlds/graph/kept/", b"manyworlds/graph/kept0"))
        self.etcd_says("kv/deleterange", key=first, range_end=last)

    def has_context(self):
        key = base64.b64encode(b"manyworlds/graph/kept/context/term").decode()
        return bool(self.etcd_says("kv/range", key=key).get("kvs", []))

    def stop_in_order(self):
        """Ends the job: all of its programs end with 0, and its instances with it."""
        pids = self.pids()
        assert self.ask("stop").returncode == 0
        assert self.ask("wait").returncode == 0
        for one in [*self.agents.values(), *self.masters]:
            assert one.wait(LIMIT) == 0, self.said()
        until(lambda: not any(lives(pid) for pid in pids.values()), f"of {pids} some live")

    def end(self):
        for one in self.all:
            if one.poll() is None:
                one.send_signal(signal.SIGCONT)
                one.kill()
                one.wait(LIMIT)
