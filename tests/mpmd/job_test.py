#!/usr/bin/env python3
"""A job on this machine, as processes: its instances, its master, its agent and itself are killed.

usage: job_test.py MWGRAPH ROLE_USER JOB_CLIENT_USER SESSION_ROLE_USER
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

MWGRAPH, ROLE_USER, JOB_CLIENT_USER, SESSION_ROLE_USER = (os.path.abspath(path) for path in sys.argv[1:5])
LIMIT = 30  # of each wait, on a machine that is busy


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
    def __init__(self, name, text, how="run"):
        self.name = name
        with open(f"{name}.toml", "w", encoding="utf-8") as file:
            file.write(text)
        line = [MWGRAPH, how, f"{name}.toml", "--folder", os.path.abspath("jobs")]
        with open(f"{name}.out", "w", encoding="utf-8") as out:
            self.process = subprocess.Popen(line, stdout=out, stderr=out)

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
                return pids
            time.sleep(0.05)
        self.fail(f"{count} are not ready: {self.ask('status').stdout}")

    def log_says(self, instance, text):
        until = time.monotonic() + LIMIT
        while time.monotonic() < until:
            if text in self.ask("logs", instance).stdout:
                return
            time.sleep(0.05)
        self.fail(f"{instance} does not say {text!r}: {self.ask('logs', instance).stdout}")

    def log_counts(self, instance, text, times):
        """Waits until it has said that so often."""
        until = time.monotonic() + LIMIT
        while self.ask("logs", instance).stdout.count(text) < times:
            if time.monotonic() > until:
                self.fail(f"{instance} does not say {text!r} {times} times: {self.ask('logs', instance).stdout}")
            time.sleep(0.05)

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

    def end(self):
        assert self.ask("stop").returncode == 0
        return self.process.wait(LIMIT)

    def fail(self, why):
        with open(f"{self.name}.out", encoding="utf-8") as out:
            print(out.read(), file=sys.stderr)
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


def a_killed_instance_alone_is_replaced_and_its_edges_form_again():
    """graph B35, B54: neighbours keep their processes; a killed master restarts nothing."""
    job = Job("edges", graph("edges"))
    before = job.until_ready(3)
    os.kill(before["decode.1"], signal.SIGKILL)
    after = job.until_ready(3, {"decode.1": before["decode.1"]})
    for kept in ("prefill.0", "decode.0"):
        assert after[kept] == before[kept], kept
    job.log_says("prefill.0", "peer_lost decode.1")
    job.log_says("prefill.0", "peer_back decode.1")
    # What the first incarnation has recorded, the second one knows.
    job.log_says("decode.1", "lives 1")
    # Several tasks that record one key at a time are all answered.
    job.log_says("decode.1", "recorded thrice")
    assert "peer_lost decode.0" not in job.ask("logs", "prefill.0").stdout

    line = [MWGRAPH, "picture", "edges.toml", "--live", "--folder", os.path.abspath("jobs")]
    picture = subprocess.run(line, capture_output=True, text=True, timeout=LIMIT).stdout
    assert "decode.1 ready on here, incarnation 2" in picture, picture

    (master,) = job.children("master")
    os.kill(master, signal.SIGKILL)
    until = time.monotonic() + LIMIT
    while job.status().get("term") != 2:
        assert time.monotonic() < until, "no master has followed"
        time.sleep(0.05)
    assert job.until_ready(3) == after
    why = job.ask("why", "decode.1").stdout
    assert "upstream prefill (edge kv): prefill.0 is ready" in why, why
    assert job.end() == 0
    gone(after.values())
    assert "leaves" in job.ask("logs", "decode.0").stdout
    assert json.loads(job.ask("status", "--json").stdout)["stage"] == "stopped"


def what_was_recorded_outlives_masters():
    """Facts that no master had recorded when it died are told to the next one."""
    job = Job("facts", graph("facts"))
    before = job.until_ready(3)
    for _ in range(3):
        (master,) = job.children("master")
        count = job.count("decode.0")
        os.kill(master, signal.SIGKILL)
        until = time.monotonic() + LIMIT
        while job.count("decode.0") <= count + 1 or job.children("master") in ([], [master]):
            assert time.monotonic() < until, f"nothing is recorded after {count}"
            time.sleep(0.02)
    os.kill(before["decode.0"], signal.SIGKILL)
    job.until_ready(3, {"decode.0": before["decode.0"]})
    lines = job.ask("logs", "decode.0").stdout.splitlines()
    (again,) = [int(line.split()[2]) for line in lines if line.startswith("count was") and line != "count was 0"]
    with open(f"jobs/{job.name}/logs/decode.0/1.log", encoding="utf-8") as file:
        told = [int(line.split()[1]) for line in file if line.startswith("count ") and "was" not in line]
    assert again >= told[-1], (again, told[-1])
    assert job.end() == 0


def a_killed_agent_takes_its_processes_with_it_and_they_are_placed_again():
    """graph B74, G-a."""
    job = Job("agents", graph("agents"))
    before = job.until_ready(3)
    # Not its guard, which has the same command line.
    os.kill(parent_of(before["decode.0"]), signal.SIGKILL)
    gone(before.values())
    after = job.until_ready(3, before)
    assert job.end() == 0
    gone(after.values())


def a_job_ends_with_the_code_of_its_driver():
    """graph B11, B46, B47."""
    job = Job(
        "drives",
        graph(
            "drives",
            '[role.main]\nrun = ["/bin/sh", "-c", "exit 3"]\nafter = ["decode"]\n'
            'driver = true\nrestart = { when = "never" }\n',
        ),
    )
    assert job.process.wait(LIMIT) == 3
    status = json.loads(job.ask("status", "--json").stdout)
    (main,) = [i for i in status["instances"] if i["instance"] == "main.0"]
    assert "exited with code 3" in main["last_end"], main


def a_job_that_is_run_ends_with_its_command_and_one_that_is_started_does_not():
    """graph B73."""
    job = Job("attached", graph("attached"))
    pids = job.until_ready(3)
    job.process.kill()
    job.process.wait(LIMIT)
    gone([*pids.values(), *job.children("master"), *job.children("agent")])

    job = Job("apart", graph("apart"), how="start")
    assert job.process.wait(LIMIT) == 0
    pids = job.until_ready(3)
    twice = Job("apart", graph("apart"))
    assert twice.process.wait(LIMIT) == 1  # its name is taken
    assert job.until_ready(3) == pids
    assert job.ask("stop").returncode == 0
    assert job.ask("wait").returncode == 0
    gone(pids.values())


def what_fits_nowhere_starts_nothing():
    """graph B5."""
    job = Job("large", graph("large").replace("count = 2", "needs = { cpus = 4096 }"))
    assert job.process.wait(LIMIT) == 1
    status = json.loads(job.ask("status", "--json").stdout)
    assert status["stage"] == "stopped" and "cpus" in status["why"].lower(), status["why"]
    assert not status["instances"]


def a_program_that_is_not_there_is_named():
    missing = '[role.main]\nrun = ["./none"]\nrestart = { when = "never" }\ndriver = true\n'
    job = Job("missing", f'name = "missing"\n{missing}')
    assert job.process.wait(LIMIT) != 0
    status = json.loads(job.ask("status", "--json").stdout)
    assert "./none" in status["why"] or "./none" in str(status["instances"]), status


def a_program_submits_a_job_and_waits_for_its_end():
    """graph B1: the interface of C++."""
    folder = os.path.abspath("jobs")
    line = [JOB_CLIENT_USER, MWGRAPH, ROLE_USER, folder]
    done = subprocess.run(line, capture_output=True, text=True, timeout=4 * LIMIT)
    assert done.returncode == 0, done.stdout + done.stderr


def session_graph(name, more=""):
    return f"""\
name = "{name}"
[role.tp]
run = ["{SESSION_ROLE_USER}"]
kind = "spmd"
count = 4
ready = "told"
drain = "5s"
grace = "1s"
restart = {{ tries = 10, per = "1m" }}
{more}"""


def a_role_is_a_session_that_keeps_its_losses_to_itself():
    """graph: a worker is killed, stopped, and all of them at once; nothing else starts again."""
    job = Job("session", session_graph("session"))
    before = job.until_ready(4)
    job.log_says("tp.0", "the sums are right")
    os.kill(before["tp.2"], signal.SIGKILL)
    after = job.until_ready(4, {"tp.2": before["tp.2"]})
    assert {k: v for k, v in after.items() if k != "tp.2"} == {k: v for k, v in before.items() if k != "tp.2"}
    job.log_counts("tp.0", "the sums are right", 2)
    assert "a call failed" in job.ask("logs", "tp.0").stdout

    # One that stands still ends only by force.
    os.kill(after["tp.1"], signal.SIGSTOP)
    job.log_counts("tp.0", "the sums are right", 3)
    again = job.until_ready(4, {"tp.1": after["tp.1"]})
    assert again["tp.0"] == before["tp.0"] and again["tp.3"] == before["tp.3"]
    assert "its session has lost it" in job.ask("events").stdout, job.ask("events").stdout

    for worker in ("tp.1", "tp.2", "tp.3"):
        os.kill(again[worker], signal.SIGKILL)
    job.log_counts("tp.0", "the sums are right", 4)
    assert job.pids()["tp.0"] == before["tp.0"]
    assert "a wrong sum" not in job.ask("logs", "tp.0").stdout
    assert job.end() == 0
    job.log_says("tp.1", "worked")
    gone([*before.values(), *after.values(), *again.values()])


def a_sessions_workers_stay_when_their_controller_dies():
    """graph B49: its own death: it is started again, and takes its workers back."""
    job = Job("adopts", session_graph("adopts", '[role.forgetful]\nrun = ["/bin/sleep", "1000"]\n'))
    before = job.until_ready(5)
    for controllers in range(1, 3):
        job.log_says("tp.0", "the sums are right")
        os.kill(job.pids()["tp.0"], signal.SIGKILL)
        pids = job.until_ready(5, {"tp.0": before["tp.0"]})
        assert {k: v for k, v in pids.items() if k != "tp.0"} == {k: v for k, v in before.items() if k != "tp.0"}
        job.log_says("tp.0", "the sums are right")
        before = pids
    # A worker that stands still does not keep the next controller from its session.
    os.kill(before["tp.3"], signal.SIGSTOP)
    os.kill(before["tp.0"], signal.SIGKILL)
    pids = job.until_ready(5, {"tp.0": before["tp.0"], "tp.3": before["tp.3"]})
    job.log_says("tp.0", "the sums are right")
    assert pids["tp.1"] == before["tp.1"] and pids["tp.2"] == before["tp.2"]
    assert job.end() == 0
    gone([*before.values(), *pids.values()])


def end_what_is_left(folder):
    """A claim that failed leaves its job: its programs end with it."""
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if folder.encode() in file.read() and pid != os.getpid():
                    os.kill(pid, signal.SIGKILL)
        except OSError:
            continue


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    try:
        for name, claim in list(globals().items()):
            if callable(claim) and name.startswith(("a_", "what_")):
                began = time.monotonic()
                claim()
                print(f"{name.replace('_', ' ')}: {time.monotonic() - began:.1f} s", flush=True)
    finally:
        end_what_is_left(os.path.realpath(folder))
