#!/usr/bin/env python3
"""L62: four ranks in six worlds under mwrun, and kills of one after the other by seed.

usage: kills_test.py MWRUN ELASTIC

Four kills, or twenty within a minute where MANYWORLDS_TEST_LONG is set; MANYWORLDS_SEED is the seed.
"""
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time

from jobs import CLEAN, agent_of, claim, until
from watched_program import ARGUMENTS, PROGRAM, claim_nothing_is_left, failures

ELASTIC = os.path.abspath(ARGUMENTS[0])
RANKS = 4
KILLS = 20 if os.environ.get("MANYWORLDS_TEST_LONG") else 4
PAUSE_S = 2.8
STARTED = re.compile(r"rank (\d) started again as pid (\d+), incarnation (\d+)")
UP_AGAIN = re.compile(r"rank (\d)(?: started again as pid \d+, incarnation \d+, after [^;]*;|:) worlds .* up again ")
BROKEN = re.compile(r"rank (\d): (\d)-(\d)@\d+ broken")


def children_of(parent):
    """The workers by their ranks."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
                state, of = stat.read().rpartition(")")[2].split()[:2]
            if int(of) != parent or state in "ZX" or os.readlink(f"/proc/{pid}/exe") != ELASTIC:
                continue
            with open(f"/proc/{pid}/environ", "rb") as environment:
                rank = re.search(rb"(?:^|\0)RANK=(\d+)", environment.read())
            found[int(rank.group(1))] = int(pid)
        except (OSError, AttributeError):
            pass  # it ended meanwhile, or has not executed its program yet
    return found


def main():
    seed = int(os.environ.get("MANYWORLDS_SEED", random.randrange(1 << 30)))
    chance = random.Random(seed)
    print(f"seed {seed}")
    lines = []
    job = subprocess.Popen([PROGRAM, "--standalone", f"--nproc-per-node={RANKS}", "--restart-scope=worker",
                            f"--max-restarts={KILLS}", "--no-python", ELASTIC], env=CLEAN, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, start_new_session=True)
    reader = threading.Thread(target=lambda: lines.extend(job.stdout), daemon=True)
    reader.start()
    try:
        claim("six worlds of four ranks are up",
              until(lambda: sum(" is up" in line for line in lines) >= 12, 40), lines)
        agent = agent_of(job.pid)
        for kill in range(KILLS):
            before = children_of(agent)
            victim = chance.randrange(RANKS)
            begun = len(lines)
            time.sleep(chance.random() * 0.2)
            os.kill(before[victim], signal.SIGKILL)
            again = until(lambda seen=begun, rank=victim: any(
                (found := UP_AGAIN.search(line)) and int(found.group(1)) == rank for line in lines[seen:]), 30)
            after = children_of(agent)
            told = "".join(lines[begun:])
            claim(f"L62 kill {kill + 1}: rank {victim} is replaced, and its worlds are up again", again, told)
            claim("the other three have the processes that they had",
                  all(after.get(rank) == before[rank] for rank in range(RANKS) if rank != victim), (before, after))
            broken = {found.groups()[1:] for found in map(BROKEN.search, lines[begun:]) if found}
            claim("and their worlds lost nothing", all(str(victim) in pair for pair in broken), broken)
            time.sleep(max(0.0, PAUSE_S * chance.random()))
        replaced = [found.groups() for found in map(STARTED.search, lines) if found]
        claim("every kill was one replacement", len(replaced) == KILLS, replaced)
        job.send_signal(signal.SIGTERM)
        claim("a signal ends all", until(lambda: job.poll() is not None, 40))
    finally:
        job.kill()
        job.wait()
        reader.join(10)
        job.stdout.close()
    claim_nothing_is_left()
    sys.exit(1 if failures else 0)


main()
