#!/usr/bin/env python3
"""P11: two replica groups of two ranks, of which one is hurt while the other goes on.

usage: replicas_test.py MWRUN REPLICA_GROUPS

Three times in about 10 s, or each 5 s for 60 s where MANYWORLDS_TEST_LONG is set; MANYWORLDS_SEED is the seed.
"""
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time

from jobs import CLEAN, claim, until
from watched_program import ARGUMENTS, PROGRAM, claim_nothing_is_left, failures

GROUPS = os.path.abspath(ARGUMENTS[0])
IS_LONG = bool(os.environ.get("MANYWORLDS_TEST_LONG"))
HITS = 12 if IS_LONG else 3
EVERY_S = 5 if IS_LONG else 2
# Of an operation between groups, in the program; and how much later a busy machine may tell it.
TIMEOUT_S = 1.0
LATE_S = 1.5
TOLD = re.compile(r"rank (\d) step (\d+) together (\d+) jumps (\d+) longest inside (\d+) between (\d+)")
BEGINS = re.compile(r"rank (\d) group (\d) epoch (\d+) from step")
WAYS = ["the leader is killed", "both are killed", "the leader is stopped, and killed", "the follower is killed"]


def workers():
    """The pids of the workers by their ranks, which this test's programs have started."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/exe") != GROUPS:
                continue
            with open(f"/proc/{pid}/environ", "rb") as environment:
                told = dict(each.split(b"=", 1) for each in environment.read().split(b"\0") if b"=" in each)
            if told.get(b"MANYWORLDS_TEST_RUN") == str(os.getpid()).encode():
                found[int(told[b"RANK"])] = int(pid)
        except (OSError, KeyError):
            pass  # it ended meanwhile
    return found


class Training:
    """The job, and what its ranks have told."""

    def __init__(self):
        self.lines = []
        self.process = subprocess.Popen(
            [PROGRAM, "--standalone", "--nproc-per-node=4", "--restart-scope=worker", f"--max-restarts={3 * HITS}",
             "--no-python", GROUPS], env=CLEAN, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True)
        self.reader = threading.Thread(target=lambda: self.lines.extend(self.process.stdout), daemon=True)
        self.reader.start()

    def told(self, ranks, begun=0):
        """What these ranks have told since: step, together, jumps, longest inside and between, in milliseconds."""
        found = [tuple(map(int, each.groups())) for each in map(TOLD.search, self.lines[begun:]) if each]
        return [each for each in found if each[0] in ranks]

    def are_together(self, begun):
        """Whether each rank tells that steps were taken with the other group."""
        for rank in range(4):
            seen = self.told([rank], begun)
            if len(seen) < 2 or seen[-1][2] == seen[0][2]:
                return False
        return True

    def end(self):
        self.process.kill()
        self.process.wait()
        self.reader.join(10)
        self.process.stdout.close()


def hurt(way, group):
    before = workers()
    leader, follower = 2 * group, 2 * group + 1
    if "stopped" in way:
        os.kill(before[leader], signal.SIGSTOP)
        # Longer than the limit and the lateness: what has no limit would wait for that long.
        time.sleep(TIMEOUT_S + LATE_S + 1)
    meant = [leader] if "leader" in way else [follower] if "follower" in way else [leader, follower]
    for rank in meant:
        os.kill(before[rank], signal.SIGKILL)


def main():
    seed = int(os.environ.get("MANYWORLDS_SEED", random.randrange(1 << 30)))
    chance = random.Random(seed)
    print(f"seed {seed}")
    training = Training()
    longest = {"inside": 0, "between": 0}
    try:
        claim("P11 two groups train together", until(lambda: training.are_together(0), 40), "".join(training.lines))
        for hit in range(HITS):
            next_hit = time.monotonic() + EVERY_S
            way, group = WAYS[hit % len(WAYS)], chance.randrange(2)
            survivors = [2 * (1 - group), 2 * (1 - group) + 1]
            begun = len(training.lines)
            before, pids = training.told(survivors)[-2:], workers()
            hurt(way, group)
            hurt_at = len(training.lines)
            claim(f"P11 {way}, of group {group}: it is replaced, and both train together again",
                  until(lambda at=hurt_at: training.are_together(at), 30), "".join(training.lines[begun:]))
            told = training.told(survivors, begun)
            now = workers()
            claim("P11 the other group has the processes that it had",
                  all(now.get(rank) == pids[rank] for rank in survivors), (pids, now))
            again = [each for each in map(BEGINS.search, training.lines[begun:]) if each]
            claim("P11 its own world was not formed again, and it lost no step",
                  not any(int(each.group(1)) in survivors for each in again) and
                  {each[3] for each in told} == {each[3] for each in before} and
                  all(told_of == sorted(told_of) for told_of in ([e[1] for e in told if e[0] == r] for r in survivors)),
                  "".join(training.lines[begun:]))
            blocked = {"inside": max(each[4] for each in told), "between": max(each[5] for each in told)}
            claim("P11 it waited in no operation for longer than the operation's limit",
                  max(blocked.values()) < 1000 * (TIMEOUT_S + LATE_S), (blocked, "".join(training.lines[begun:])))
            longest = {where: max(longest[where], blocked[where]) for where in longest}
            time.sleep(max(0.0, next_hit - time.monotonic()))
        print(f"        the longest that a surviving group waited: {longest['inside']} ms in its own world, "
              f"{longest['between']} ms for the other group, limit {TIMEOUT_S:.0f} s")
        training.process.send_signal(signal.SIGTERM)
        claim("a signal ends all", until(lambda: training.process.poll() is not None, 40))
    finally:
        training.end()
    claim_nothing_is_left()
    sys.exit(1 if failures else 0)


main()
