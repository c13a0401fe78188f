#!/usr/bin/env python3
"""The example `workers` goes on with right steps when workers are killed, by itself and by hand, and ends with its
controller: workers_test.py PROGRAM"""

import os
import re
import signal
import subprocess
import time

from watched_program import PROGRAM, claim, claim_nothing_is_left, failures, what_is_left

ran = subprocess.run([PROGRAM, "12", "4"], capture_output=True, text=True, timeout=60)
claim("it ends well", ran.returncode == 0, ran.returncode)
claim("all steps are right, and three workers were replaced",
      "12 steps, 0 wrong, 3 workers replaced" in ran.stdout, ran.stdout[-300:])
claim("each loss has its reason", ran.stdout.count("was ended by SIGKILL") >= 3, ran.stdout.count("SIGKILL"))
claim_nothing_is_left()

by_hand = subprocess.Popen([PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
pids, steps, is_killed = [], 0, False
until = time.monotonic() + 40
for line in by_hand.stdout:
    if found := re.match(r"worker \d is pid (\d+)", line):
        pids.append(int(found[1]))
    if re.match(r"step \d+: \d+$", line):
        steps += 1
        if steps == 1:
            os.kill(pids[1], signal.SIGKILL)
    is_killed = is_killed or "it is pid" in line
    if steps >= 3 or time.monotonic() > until:
        break
claim("a worker that is killed by hand is replaced", is_killed and steps >= 3, steps)
claim("there are three workers and their controller", len(what_is_left()) >= 4, what_is_left())
by_hand.kill()
by_hand.wait()
by_hand.stdout.close()
end = time.monotonic() + 1.5
while what_is_left() and time.monotonic() < end:
    time.sleep(0.01)
claim("disco A63: all workers end within a second and a half of a kill of their controller", not what_is_left(), what_is_left())
claim_nothing_is_left()
raise SystemExit(bool(failures))
