"""Jobs of mwgraph on this machine, for tests: each in the folder "jobs" of the working folder."""
import glob
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

import remains

MWGRAPH, ROLE_USER = (os.path.abspath(path) for path in sys.argv[1:3])
LIMIT = 30  # of each wait, on a machine that is busy


def goal(what, took, at_most):
    """Returns in words what was measured, in seconds. That it reaches its goal is claimed in the long run alone, as a
    machine may be busy."""
    assert took <= at_most or not os.environ.get("MANYWORLDS_TEST_LONG"), (what, took, at_most)
    return f"{what} {took * 1000:.0f} ms"


def until(condition, why):
    """Waits for what a condition gives, and returns it."""
    end = time.monotonic() + LIMIT
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < end, why() if callable(why) else why
        time.sleep(0.02)


def graph(name, more=""):
    return f"""\
name = "{name}"
[role.prefill]
run = ["{ROLE_USER}"]
ready = "told"
drain = "5s"
[role.decode]
run = ["{ROLE_USER}"]
count = 2
ready = "told"
drain = "5s"
[edge.kv]
from = "prefill"
to = "decode"
shape = "pairs"
{more}"""


class Job:
    def __init__(self, name, text, how="run", more=(), through=(), stdout=None):
        self.name = name
        with open(f"{name}.toml", "w", encoding="utf-8") as file:
            file.write(text)
        line = [*through, MWGRAPH, how, f"{name}.toml", "--folder", os.path.abspath("jobs"), *more]
        with open(f"{name}.out", "w", encoding="utf-8") as out:
            self.process = subprocess.Popen(line, stdout=stdout or out, stderr=out)

    def ask(self, command, *arguments):
        line = [MWGRAPH, command, self.name, *arguments, "--folder", os.path.abspath("jobs")]
        return subprocess.run(line, capture_output=True, text=True, timeout=LIMIT)

    def status(self):
        done = self.ask("status", "--json")
        return json.loads(done.stdout) if done.returncode == 0 else {"stage": "?", "instances": []}

    def pids(self):
        return {
            each["instance"]: each["pid"]
            for each in self.status()["instances"]
            if each.get("life") == "ready"
        }

    def until_ready(self, count, other_than=None):
        """Waits until that number are ready, and the named ones by other processes."""
        until = time.monotonic() + LIMIT
        while time.monotonic() < until:
            pids = self.pids()
            if len(pids) == count and all(pids.get(k) != v for k, v in (other_than or {}).items()):
                remains.look()
                return pids
            time.sleep(0.05)
        self.fail(f"{count} are not ready: {self.ask('status').stdout}{self.said_by_those_who_are_not_ready()}")

    def said_by_those_who_are_not_ready(self):
        said = ""
        for each in self.status()["instances"]:
            if each.get("life") in ("starting", "running"):
                for path in glob.glob(f"jobs/{self.name}/logs/{each['instance']}/{each['incarnation']}.log"):
                    with open(path, encoding="utf-8") as file:
                        said += f"\n{each['instance']} has said:\n{file.read()[-2000:]}"
        return said

    def log_of(self, instance, incarnation):
        """Returns what one incarnation has printed."""
        with open(f"jobs/{self.name}/logs/{instance}/{incarnation}.log", encoding="utf-8") as file:
            return file.read()

    def of(self, instance):
        """Returns how an instance stands."""
        def found():
            return [each for each in self.status()["instances"] if each["instance"] == instance]
        return until(found, lambda: f"{instance} is not there: {self.ask('status').stdout}")[0]

    def event(self, text):
        """Returns when an event began with that text, in seconds as the clock tells them."""
        def found():
            return [each["time"] / 1000 for each in self.status()["events"] if each["what"].startswith(text)]
        return until(found, lambda: f"{text!r} has not happened: {self.ask('events').stdout}")[-1]

    def log_says(self, instance, text, times=1):
        """Waits until the instance has said that so often."""
        until = time.monotonic() + LIMIT
        while time.monotonic() < until:
            if self.ask("logs", instance).stdout.count(text) >= times:
                return
            time.sleep(0.05)
        self.fail(f"{instance} does not say {text!r} {times} times: {self.ask('logs', instance).stdout}")

    def count(self, instance):
        """Returns the last number that it has printed as recorded."""
        lines = self.ask("logs", instance).stdout.splitlines()
        counts = [line for line in lines if line.startswith("count ") and "was" not in line]
        return int(counts[-1].split()[1]) if counts else 0

    def children(self, word):
        """Returns the processes of mwgraph with that command, for this job."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    line = file.read().split(b"\0")
            except OSError:
                continue
            # Another run of this test has jobs of the same names in its own folder.
            is_here = os.path.abspath("jobs").encode() in b" ".join(line)
            if len(line) > 2 and line[1] == word.encode() and self.name.encode() in line and is_here:
                found.append(int(pid))
        return found

    def agent(self, node):
        """Starts another agent of the job."""
        line = [MWGRAPH, "agent", self.name, "--node", node, "--folder", os.path.abspath("jobs"),
                "--log-dir", os.path.abspath(f"jobs/{self.name}/logs")]
        with open(f"{self.name}.{node}.out", "a", encoding="utf-8") as out:
            return subprocess.Popen(line, stdout=out, stderr=out)

    def kill_master(self):
        """Kills it wherever it is in what it does, and returns whether there was one."""
        found = self.children("master")
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        return bool(found)

    def end(self):
        assert self.ask("stop").returncode == 0
        return self.process.wait(LIMIT)

    def fail(self, why):
        self.process.kill()
        raise AssertionError(why)


def lives(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def parent_of(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def gone(pids):
    until = time.monotonic() + LIMIT
    while any(lives(pid) for pid in pids):
        assert time.monotonic() < until, f"of {pids} some live"
        time.sleep(0.02)


def run(claims):
    """Runs claims in a folder of their own, and prints what they return. Nothing may be left of their jobs."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        remains.begin(folder)
        try:
            for claim in claims:
                began = time.monotonic()
                said = claim()
                print(f"{claim.__name__.replace('_', ' ')}: {time.monotonic() - began:.1f} s {said or ''}", flush=True)
            remains.need_nothing()
        except BaseException:
            for name in sorted(glob.glob("*.out")):
                with open(name, encoding="utf-8") as out:
                    print(f"--- {name}\n{out.read()[-8000:]}", file=sys.stderr)
            raise
        finally:
            remains.end_what_is_left(os.path.realpath(folder))
