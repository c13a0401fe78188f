#!/usr/bin/env python3
"""A job of two nodes with two masters, its context and its meeting in etcd, all of which are hurt.

usage: masters_test.py MWGRAPH ROLE_USER
"""
import base64
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "launch"))
from one_etcd import Etcd  # noqa: E402

MWGRAPH, ROLE_USER = (os.path.abspath(path) for path in sys.argv[1:3])
LIMIT = 60  # of each wait, on a machine that is busy
# How long etcd is away; the time in the long run.
AWAY = 30 if os.environ.get("MANYWORLDS_TEST_LONG") else 4

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
    def __init__(self, etcd):
        self.etcd = etcd
        self.where = ["kept", "--store", f"etcd://{etcd.endpoint}", "--insecure"]
        with open("kept.toml", "w", encoding="utf-8") as file:
            file.write(GRAPH)
        self.all = []
        self.masters = [self.master() for _ in range(2)]
        self.agents = {node: self.start("agent", "--node", node, "--log-dir", f"logs-{node}") for node in "ab"}

    def start(self, *words):
        out = open("all.out", "a", encoding="utf-8")
        one = subprocess.Popen([MWGRAPH, words[0], *self.where, *words[1:]], stdout=out, stderr=out)
        out.close()
        self.all.append(one)
        return one

    def master(self):
        return self.start("master", "--context", f"etcd://{self.etcd.endpoint}", "--graph", "kept.toml",
                          "--nodes", "2")

    def ask(self, command, *more, limit=LIMIT):
        return subprocess.run([MWGRAPH, command, *self.where, *more], capture_output=True, text=True, timeout=limit)

    def status(self):
        done = self.ask("status", "--json")
        return json.loads(done.stdout) if done.returncode == 0 else {"stage": "?", "instances": [], "term": 0}

    def pids(self):
        return {i["instance"]: i["pid"] for i in self.status()["instances"] if i.get("life") == "ready"}

    def until_ready(self, other_than=None):
        def ready():
            pids = self.pids()
            others = all(pids.get(k) != v for k, v in (other_than or {}).items())
            return pids if len(pids) == 3 and others else None
        return until(ready, lambda: f"{self.status()}\n{open('all.out', encoding='utf-8').read()}")

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

    def end(self):
        for one in self.all:
            if one.poll() is None:
                one.send_signal(signal.SIGCONT)
                one.kill()
                one.wait(LIMIT)


def lives(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def a_standby_leads_when_the_leader_dies(job):
    """graph B56, B67, G-a, G-c: the leader's death is seen by its standby, and nothing is started again."""
    before = job.until_ready()
    for _ in range(2):
        term, (leader, _) = job.status()["term"], until(job.seat, "no master has the seat")
        assert all(each.poll() is None for each in job.masters), "one that stands by does not end"
        # Which of the two leads is not told outside: the one that loses the seat by its death.
        for n in range(2):
            job.masters[n].kill()
            job.masters[n].wait(LIMIT)
            job.masters[n] = job.master()
            if until(job.seat, "no master has the seat")[0] != leader:
                break
        until(lambda: job.status()["term"] > term, lambda: f"term {term} goes on: {job.status()}")
        assert job.until_ready() == before


def a_lease_that_is_lost_is_no_death(job):
    """graph B66: a living leader leads on, and has the seat again."""
    before = job.until_ready()
    term, (leader, lease) = job.status()["term"], until(job.seat, "no master has the seat")
    job.etcd_says("lease/revoke", ID=lease)
    until(lambda: (job.seat() or ("", "0"))[1] not in ("0", lease), "no master has the seat again")
    os.kill(before["decode.1"], signal.SIGKILL)
    after = job.until_ready({"decode.1": before["decode.1"]})
    assert after["decode.0"] == before["decode.0"] and after["prefill.0"] == before["prefill.0"]
    return f"seat {leader} -> {job.seat()[0]}, term {term} -> {job.status()['term']}"


def without_etcd_everything_runs_on(job):
    """graph B65: a death while etcd is away is handled when it is back."""
    before = job.until_ready()
    job.etcd.process.send_signal(signal.SIGSTOP)
    time.sleep(AWAY / 2)
    os.kill(before["decode.0"], signal.SIGKILL)
    time.sleep(AWAY / 2)
    assert lives(before["decode.1"]) and lives(before["prefill.0"])
    job.etcd.process.send_signal(signal.SIGCONT)
    after = job.until_ready({"decode.0": before["decode.0"]})
    assert after["decode.1"] == before["decode.1"] and after["prefill.0"] == before["prefill.0"]


def the_job_ends_once(job):
    """graph B12, G-f: one result, told by all, and nothing is left."""
    pids = job.pids()
    assert job.ask("stop").returncode == 0
    assert job.ask("wait").returncode == 0
    for agent in job.agents.values():
        assert agent.wait(LIMIT) == 0
    for master in job.masters:
        assert master.wait(LIMIT) == 0
    until(lambda: not any(lives(pid) for pid in pids.values()), f"of {pids} some live")


def main():
    try:
        etcd = Etcd()
    except FileNotFoundError:
        print("skipped: etcd is not installed")
        return 77
    claims = [a_standby_leads_when_the_leader_dies, a_lease_that_is_lost_is_no_death,
              without_etcd_everything_runs_on, the_job_ends_once]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        job = Job(etcd)
        try:
            for claim in claims:
                began = time.monotonic()
                said = claim(job)
                print(f"{claim.__name__.replace('_', ' ')}: {time.monotonic() - began:.1f} s {said or ''}", flush=True)
        except BaseException:
            print(open("all.out", encoding="utf-8").read(), file=sys.stderr)
            raise
        finally:
            job.end()
            etcd.end()
    return 0


sys.exit(main())
