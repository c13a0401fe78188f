#!/usr/bin/env python3
"""The example `simulated` finds its planted mistake, replays it, and finds none where it is
mended: simulated_test.py PROGRAM"""

import re
import subprocess
import sys


def run(*arguments):
    ran = subprocess.run([sys.argv[1], *arguments], capture_output=True, text=True, timeout=100)
    return ran.returncode, ran.stdout


code, found = run()
print(found, end="")
seed = re.search(r"^seed (\d+): .*and the account shows (\d+)$", found, re.M)
assert code == 1 and seed, "no seed shows the mistake"

# The same seed is the same run, event by event.
first, second = run("--seed", seed.group(1)), run("--seed", seed.group(1))
assert first == second and first[0] == 1, "a seed does not replay"
assert seed.group(0) in first[1], "the replay finds something else"
assert first[1].count("\n") > 100, "the replay tells no events"

code, mended = run("--numbered")
print(mended, end="")
assert code == 0, "the mended account fails on a seed"
