#!/usr/bin/env python3
"""mwrun's two processes, the guard and its child, the agent: whichever is killed, the other ends all of the tree.

usage: guard_test.py MWRUN REFUSING

The numbers are those of the acceptance cases L.
"""
import glob
import itertools
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from jobs import CLEAN, agent_of, claim, finish, is_gone, shell, start, stat_of, until
from nodes_of_a_job import Job
from watched_program import ARGUMENTS, PROGRAM, claim_nothing_is_left, failures

# It runs a program where system calls are refused.
REFUSING = os.path.abspath(ARGUMENTS[0])
# A second is promised; this machine may be busy with other things.
WIDE_S = 10
# Both ignore SIGTERM, and one is in a session of its own.
TREE = ("trap '' TERM; setsid sh -c 'trap \"\" TERM; while :; do sleep 0.1; done' & echo $$ $! > {noted}.new; "
        "mv {noted}.new {noted}; while :; do sleep 0.1; done")


def words_in(path):
    with open(path, encoding="ascii") as file:
        return list(map(int, file.read().split()))


class Tree:
    """A job of one worker that has a session beside it, in a temporary folder of its own."""

    def __init__(self, *options, through=(), **others):
        self.folder = tempfile.TemporaryDirectory()
        self.noted = os.path.join(self.folder.name, "noted")
        self.temporary = os.path.join(self.folder.name, "temporary")
        os.mkdir(self.temporary)
        self.process = subprocess.Popen(
            [*through, PROGRAM, "--no-python", *options, "sh", "-c", TREE.format(noted=self.noted)], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env={**CLEAN, "TMPDIR": self.temporary}, start_new_session=True, **others)
        self.worker, self.session = 0, 0

    def __enter__(self):
        claim("a worker with a session beside it runs", until(lambda: os.path.exists(self.noted)))
        self.worker, self.session = words_in(self.noted)
        self.agent = agent_of(self.process.pid)
        return self

    def __exit__(self, *_):
        for pid in (self.agent, self.process.pid, self.session):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        finish(self.process)
        self.folder.cleanup()

    def is_gone(self):
        return all(map(is_gone, (self.agent, self.worker, self.session)))


def one_killed():
    with Tree() as tree:
        began = time.monotonic()
        os.kill(tree.agent, signal.SIGKILL)
        code, _, err = finish(tree.process)
        claim("L26 when the agent is killed the guard says so in a line",
              f"mwrun: the agent (pid {tree.agent}) was killed by SIGKILL: its workers were killed\n" in err, err)
        claim("L26 and ends when workers and their children have ended", tree.is_gone())
        claim("L26 by the signal that ended the agent, as one process would", code == -signal.SIGKILL, code)
        claim("L26 in time", time.monotonic() - began < WIDE_S, time.monotonic() - began)
        claim("L26 nothing stays of the folder for logs", os.listdir(tree.temporary) == [], os.listdir(tree.temporary))
        print(f"        the agent killed, to all gone: {time.monotonic() - began:.3f} s")
    with Tree("--shutdown-timeout=1000") as tree:
        began = time.monotonic()
        os.kill(tree.process.pid, signal.SIGKILL)
        claim("L26 when the guard is killed agent, workers and their children end, whatever the grace is",
              until(tree.is_gone, WIDE_S))
        took = time.monotonic() - began
        _, _, err = finish(tree.process)
        claim("L26 and the agent says why", f"the guard (pid {tree.process.pid}) was killed: the workers are told to "
              "end" in err, err)
        claim("L26 nothing stays of the folder for logs", until(lambda: os.listdir(tree.temporary) == [], 5))
        print(f"        the guard killed, to all gone: {took:.3f} s")
    with Tree("--shutdown-timeout=1000") as tree:
        os.kill(tree.agent, signal.SIGSTOP)
        os.kill(tree.process.pid, signal.SIGKILL)
        claim("L26 an agent that is stopped when its guard is killed ends the tree all the same",
              until(tree.is_gone, WIDE_S))
        finish(tree.process)
    with Tree("--shutdown-timeout=1000") as tree:
        os.kill(tree.agent, signal.SIGSTOP)
        for _ in range(2):
            tree.process.terminate()
            time.sleep(0.5)
        code, _, err = finish(tree.process)
        claim("L24 an agent that is stopped hears both orders to end", code == 1 and tree.is_gone() and
              "again: the workers are killed" in err, (code, err))
    for number in (signal.SIGSEGV, signal.SIGABRT):
        with Tree(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0))) as tree:
            os.kill(tree.agent, number)
            code, _, err = finish(tree.process)
            claim(f"L26 an agent that ends by {number.name} is not told as a success", code == -number and tree.is_gone()
                  and f"was killed by {number.name}" in err, (code, err))


def groups_of(pid):
    """The control groups that a process has made, where it may make some."""
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        where = [line.split()[4] for line in file if " - cgroup2 " in line]
    return glob.glob(f"{where[0]}/**/manyworlds-{pid}-*", recursive=True) if where else []


def both_killed():
    with Tree() as tree:
        groups = groups_of(tree.agent)
        os.kill(tree.agent, signal.SIGSTOP)
        os.kill(tree.process.pid, signal.SIGKILL)
        os.kill(tree.agent, signal.SIGKILL)
        claim("L26 when both are killed at once the worker ends", until(lambda: is_gone(tree.worker), WIDE_S))
        if not groups:
            print("skipped: L26 what a control group holds (none can be made here)")
            return
        claim("a session beside it lives on", not is_gone(tree.session))
        with Tree() as other:
            claim("L26 the next start kills what is in the dead one's control group", until(
                lambda: is_gone(tree.session), WIDE_S))
            claim("L26 and removes it", not groups_of(tree.agent))
            with Tree() as third:
                time.sleep(0.5)
                claim("L26 but nothing of a start that lives", not is_gone(other.session) and groups_of(other.agent)
                      and not is_gone(third.session))
            other.process.terminate()
            time.sleep(0.3)
            other.process.terminate()
            _, _, err = finish(other.process)
            claim("L26 it says so in a line", f"mwrun: 1 process of an earlier start (pid {tree.agent}), which was killed, "
                  in err or "processes of an earlier start" in err, err)
    with tempfile.TemporaryDirectory() as folder:
        noted = os.path.join(folder, "noted")
        shell(f"exec > /dev/null 2>&1; setsid sleep 300 & echo $! > {noted}", "--keep-descendants")
        kept = words_in(noted)[0]
        code, _, err = shell("true")
        claim("L27 what --keep-descendants has left is not ended by the next start", code == 0 and not is_gone(kept), err)
        os.kill(kept, signal.SIGKILL)
        shell("true")


def others_go_on():
    for which in ("the agent", "the guard", "both"):
        with Job("--nnodes=1:2", "--max-restarts=2", "--rdzv-conf=last_call_timeout=0.5") as job:
            job.add(count=2)
            claim("two nodes run", until(lambda: job.stands(2)), job.text())
            node = job.node_of(1)
            agent = agent_of(node.pid)
            for pid in ([agent] if which == "the agent" else [node.pid] if which == "the guard" else [node.pid, agent]):
                os.kill(pid, signal.SIGKILL)
            claim(f"L26 {which} of a node killed: the other node hears of it, and goes on",
                  until(lambda: job.stands(1)), job.text())
            claim("and nothing of that node is left", until(lambda: is_gone(agent) and node.poll() is not None, WIDE_S))


def refused():
    """What a container refuses costs a way to look at processes, and leaves no orphan."""
    for calls in (["docker"], ["pidfd_open"], ["io_uring_setup"], ["docker", "pidfd_open"]):
        through = [REFUSING, *calls, "--"]
        what = " and ".join({"docker": "what Docker refuses"}.get(each, each) for each in calls)
        with Tree("--shutdown-timeout=1", through=through) as tree:
            tree.process.terminate()
            code, _, err = finish(tree.process)
            claim(f"L25 without {what} the grace ends a job", code == 1 and tree.is_gone(), (code, err))
        for killed in ("agent", "guard"):
            with Tree("--shutdown-timeout=1000", through=through) as tree:
                os.kill(tree.agent if killed == "agent" else tree.process.pid, signal.SIGKILL)
                claim(f"L26 without {what} the {killed}'s death ends all", until(tree.is_gone, WIDE_S))


def hidden():
    """Orphans come to the guard, also those of which nothing else tells that they are the worker's."""
    with tempfile.TemporaryDirectory() as folder:
        noted = os.path.join(folder, "noted")
        hides = f"env -i setsid sh -c 'exec > /dev/null 2>&1; (sleep 300 & echo $! > {noted})'"
        code, _, err = shell(hides + "; exit 0")
        pid = words_in(noted)[0]
        claim("L27 a daemon without a trace has ended with its job", code == 0 and is_gone(pid), (code, err))
        started = f"sleep 300 & echo $! > {noted}.own; exec {PROGRAM} --no-python sh -c \"{hides}; exit 0\""
        own = subprocess.Popen(["sh", "-c", started], env=CLEAN, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        own.wait(60)
        kept = words_in(noted + ".own")[0]
        claim("a child that the process had before it was mwrun lives on", own.returncode == 0 and not is_gone(kept),
              own.returncode)
        for pid in (kept, words_in(noted)[0]):
            if not is_gone(pid):
                os.kill(pid, signal.SIGKILL)
    process = start("--no-python", "sh", "-c", "for i in 1 2 3 4 5; do (sleep 0.05 &); done; sleep 1; echo up; sleep 60")
    process.stdout.readline()
    children = [pid for pid in filter(str.isdigit, os.listdir("/proc")) if parent_of(pid) == process.pid]
    claim("L27 the guard reaps the orphans of workers", len(children) == 1, children)
    process.terminate()
    finish(process)


def parent_of(pid):
    try:
        return int(stat_of(pid)[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


COUNTS = ("trap 'echo got; sleep 1; echo over; exit 0' TERM; echo up; while :; do sleep 0.05; done")


def whole_group():
    """Batch systems, systemd and `timeout` signal several processes of a job, or one of them twice."""
    def ends_once(what, send):
        process = start("--shutdown-timeout=50", "--no-python", "sh", "-c", COUNTS)
        process.stdout.readline()
        send(process.pid, agent_of(process.pid))
        code, out, err = finish(process)
        claim(what, code == 1 and out.endswith("over\n") and err.count("are told to end") == 1 and "again" not in err,
              (code, out, err))
    for order in itertools.permutations((0, 1)):
        def to_each(*pids, order=order):
            for place in order:
                os.kill(pids[place], signal.SIGTERM)
        ends_once("L24 SIGTERM to guard and agent counts once", to_each)

    def late(guard, agent):
        os.kill(guard, signal.SIGTERM)
        time.sleep(0.5)
        os.kill(agent, signal.SIGTERM)
    ends_once("L24 also if one of them is late", late)

    def twice(guard, _):
        os.kill(guard, signal.SIGTERM)
        os.kill(guard, signal.SIGTERM)
        time.sleep(0.3)
        os.kill(guard, signal.SIGHUP)
    ends_once("L24 one that is sent twice at a time counts once, and the end of a terminal is no second order", twice)
    ends_once("L24 the agent alone may be told, too", lambda _, agent: os.kill(agent, signal.SIGTERM))
    if shutil.which("timeout"):
        code, out, err = finish(subprocess.Popen(
            ["timeout", "1.5", PROGRAM, "--shutdown-timeout=50", "--no-python", "sh", "-c", COUNTS], env=CLEAN,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True))
        claim("L24 `timeout` ends a job in order", code == 124 and out.endswith("over\n") and "again" not in err,
              (code, out, err))
    process = start("--shutdown-timeout=50", "--no-python", "sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done")
    process.stdout.readline()
    agent = agent_of(process.pid)
    for _ in range(2):
        os.kill(agent, signal.SIGTERM)
        os.kill(process.pid, signal.SIGTERM)
        time.sleep(0.5)
    code, _, err = finish(process)
    claim("L24 a second one to all kills", code == 1 and err.count("again: the workers are killed") == 1, (code, err))


def small():
    process = start("--nproc-per-node=2", "--no-python", "sh", "-c", "echo up; exec sleep 60")
    process.stdout.readline()
    agent = agent_of(process.pid)
    total = 0
    for pid in (process.pid, agent):
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            total += int(re.search(r"^Pss: +(\d+)", file.read(), re.M).group(1))
    claim("both together use less than 20 MB when idle", total < 20000, f"{total} kB")
    print(f"        {total} kB")
    process.terminate()
    finish(process)


for part in (one_killed, refused, both_killed, others_go_on, hidden, whole_group, small):
    part()
claim_nothing_is_left()
sys.exit(bool(failures))
