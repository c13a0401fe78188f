#!/usr/bin/env python3
"""The example elastic replaces workers that are killed and stopped, and touches no other: elastic_test.py PROGRAM

Where MANYWORLDS_TEST_LONG is set it also runs under a real torchrun; MANYWORLDS_TORCHRUN is the command to take in
place of `torchrun`.
"""
import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

from watched_program import PROGRAM, claim, claim_nothing_is_left, failures

LAUNCHERS = re.compile(r"RANK|WORLD_SIZE|LOCAL_|GROUP_|ROLE_|MASTER_|TORCH|MANYWORLDS_(?!TEST)|SLURM|PMI|OMPI|MPI_")
CLEAN = {name: value for name, value in os.environ.items() if not LAUNCHERS.match(name)}


def figures():
    done = subprocess.run([PROGRAM, "--json"], capture_output=True, text=True, timeout=100, env=CLEAN)
    claim("L62 the show ends with 0", done.returncode == 0 and done.stderr == "", (done.returncode, done.stderr))
    lines = done.stdout.splitlines()
    claim("--json prints one object and nothing else", len(lines) == 1, done.stdout[-2000:])
    seen = json.loads(lines[0])
    print(seen)
    claim("L62 the killed and the stopped were replaced", seen["restarted"] == [1, 2])
    claim("L62 the others have the processes that they had", seen["untouched"] == [0, 3])
    claim("L62 the worlds without them lost nothing", seen["lost"] == 0)
    # Wide: the machine may be busy.
    claim("L62 and went on", 0 < seen["max_gap_ms"] < 5000)
    claim("L62 those with them were up again", 0 < seen["reform_ms"] < 20000)
    claim("L65 also of the one that was stopped, after the limit", 1500 < seen["stopped_reform_ms"] < 30000)
    claim_nothing_is_left()


def a_story():
    done = subprocess.run([PROGRAM, "--workers", "2"], capture_output=True, text=True, timeout=100, env=CLEAN)
    said = done.stdout
    claim("it ends with 0", done.returncode == 0 and done.stderr == "", (done.returncode, done.stderr))
    order = [r">> kill -9 \d+, rank 1\n", r"elastic: rank 1 \(pid \d+\) killed by signal 9 \(SIGKILL\); the others go on",
             r"rank 1 started again as pid \d+, incarnation 2, after .*; world 0-1 up again after ",
             r">> kill -STOP \d+, rank 0\n", r"rank 0 \(pid \d+\) is stuck",
             r"rank 0 started again as pid \d+, incarnation 2, after .*; world 0-1 up again after ",
             r"replaced: 0, 1; untouched: ; "]
    claim("it tells what happens, in order", re.search("(.*\n)*.*".join(order), said), said)


def a_signal_ends_it():
    with subprocess.Popen([PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=CLEAN) as running:
        for line in running.stdout:
            if " is up" in line:
                break
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    claim("Ctrl-C ends it, and what it has started", running.returncode == 130 and err == "",
          (running.returncode, out[-2000:], err))
    claim_nothing_is_left()


def children_of(parent):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            state, of = stat.read().rpartition(")")[2].split()[:2]
            if int(of) == parent and state not in "ZX" and os.readlink(f"/proc/{pid}/exe") == PROGRAM:
                found.append(int(pid))
    return found


def under_torchrun():
    words = shlex.split(os.environ.get("MANYWORLDS_TORCHRUN", "torchrun"))
    if not os.environ.get("MANYWORLDS_TEST_LONG") or not shutil.which(words[0]):
        print("skipped: torchrun runs where it is installed and MANYWORLDS_TEST_LONG is set (tests/run.sh --full)")
        return
    command = [*words, "--no-python", "--standalone", "--max-restarts=1", "--nproc-per-node=3", PROGRAM]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=CLEAN) as running:
        up = 0
        killed = []
        said = ""
        for line in running.stdout:
            said += line
            up += " is up" in line
            if up == 6 and not killed:
                killed = children_of(running.pid)
                os.kill(killed[0], signal.SIGKILL)
            if up == 12:
                break
        restarted = children_of(running.pid)
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=60)
    claim("under a real torchrun the same program joins", up == 12, said[-3000:])
    claim("where the death of one ends all", len(restarted) == 3 and not set(restarted) & set(killed), (killed, restarted))
    time.sleep(0.5)
    claim_nothing_is_left()


for part in (figures, a_story, a_signal_ends_it, under_torchrun):
    part()
sys.exit(bool(failures))
