#!/usr/bin/env python3
"""The example tensor_parallel decodes what one process would, although its workers are killed, throw and stop:
tensor_parallel_test.py PROGRAM [ARGUMENTS...]"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading

from watched_program import ARGUMENTS, PROGRAM, claim, claim_nothing_is_left, failures

COMMAND = [PROGRAM, *ARGUMENTS]
PATIENCE = 50


def ends_well(done):
    claim("it ends well, and says nothing else", done.returncode == 0 and done.stderr == "",
          (done.returncode, done.stderr[-2000:]))


def figures(*arguments):
    done = subprocess.run([*COMMAND, "--json", *arguments], capture_output=True, text=True, timeout=PATIENCE)
    ends_well(done)
    lines = done.stdout.splitlines()
    claim("--json prints one object and nothing else", len(lines) == 1, done.stdout[-2000:])
    seen = json.loads(lines[0])
    print(seen)
    claim("disco A30, A31: all tokens are those of one process, and all logits", seen["tokens"] == 48 and seen["wrong"] == 0)
    # A busy machine may lose one more, which comes back in the same way.
    named = {each["what"]: each for each in seen["faults"] if each["what"]}
    workers = {what: each["worker"] for what, each in named.items()}
    claim("each fault is the error of a step, and names its worker", workers == {"killed": 2, "threw": 1, "stopped": 3}, seen)
    if set(workers) != {"killed", "threw", "stopped"}:
        return
    claim("S-b what a worker throws is told", "SIGUSR1 told it to throw" in named["threw"]["error"])
    claim("the loss of a process has its reason", "SIGKILL" in named["killed"]["error"])
    for what in ("killed", "stopped"):
        claim(f"the worker that was {what} came back", named[what]["respawn_ms"] > 0)
    for figure in ("detect_ms", "respawn_ms", "stopped_detect_ms", "threw_detect_ms", "other_max_gap_ms"):
        claim(f"{figure} is measured", seen[figure] > 0)
    claim("S-e the session beside it lost nothing", seen["other_lost"] == 0 and seen["other_steps"] > 0)
    claim_nothing_is_left()


def a_story():
    done = subprocess.run(COMMAND, capture_output=True, text=True, timeout=PATIENCE)
    ends_well(done)
    story = [r"worker 3 is pid \d+\n", r"tokens: \d+", r"step \d+: .*worker 2.*SIGKILL.*; it is pid \d+ now, after",
             r"step \d+: .*worker 1.*SIGUSR1 told it to throw.*; the step is made again",
             r"step \d+: .*worker 3.*; it is pid \d+ now, after", r"tokens 48, wrong 0, .*other_max_gap_ms [\d.]+ in \d+ steps"]
    claim("it tells what happens, in order", re.search("(.*\n)*.*".join(story), done.stdout), done.stdout)
    claim_nothing_is_left()


def by_hand():
    with subprocess.Popen([*COMMAND, "--no-faults", "--tokens", "16", "--pause", "0.1"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as running:
        timer = threading.Timer(PATIENCE, running.kill)
        timer.start()
        pids, said = [], ""
        for line in iter(running.stdout.readline, ""):
            said += line
            if found := re.match(r"worker \d is pid (\d+)", line):
                pids.append(int(found[1]))
            if len(pids) == 4:
                os.kill(pids[0], signal.SIGKILL)
                break
        out, err = running.communicate()
        timer.cancel()
    said += out
    claim("it ends well after a kill by hand", running.returncode == 0 and err == "", (running.returncode, err))
    claim("which is named and mended", re.search(r"step \d+: .*worker 0.*SIGKILL.*; it is pid \d+ now", said), said)
    claim("no token is wrong", "tokens 16, wrong 0" in said, said[-300:])
    claim_nothing_is_left()


def a_signal_ends_it():
    with subprocess.Popen([*COMMAND, "--no-faults"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        timer = threading.Timer(PATIENCE, running.kill)
        timer.start()
        running.stdout.readline()
        running.send_signal(signal.SIGINT)
        _, err = running.communicate()
        timer.cancel()
    claim("Ctrl-C ends it, and its workers", running.returncode == 130 and err == "", (running.returncode, err))
    claim_nothing_is_left()


with tempfile.TemporaryDirectory() as folder:
    os.environ["TMPDIR"] = folder
    for each in (figures, lambda: figures("--stages", "2"), a_story, by_hand, a_signal_ends_it):
        each()
        claim("its file of weights is gone", not os.listdir(folder), os.listdir(folder))
sys.exit(bool(failures))
