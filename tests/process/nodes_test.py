#!/usr/bin/env python3
"""The example `workers` over two nodes, each with its mwnode: nodes are killed, cut off and told to end, and come again:
nodes_test.py WORKERS MWNODE"""

import os
import re
import signal
import subprocess
import threading
import time

from own_network import TwoNetworks
from watched_program import ARGUMENTS, PROGRAM, claim, claim_nothing_is_left, failures, what_is_left

MWNODE = os.path.abspath(ARGUMENTS[0])
LIMIT = 40

try:
    networks = TwoNetworks()
    address = "10.9.9.1:7070"
except OSError as e:
    print(f"skipped: networks that are cut: {e}")
    networks, address = None, "127.0.0.1:17070"


def inside(side, *words):
    return networks.inside(side, *words) if networks else list(words)


class Running:
    """A process, and what it says."""

    def __init__(self, *words):
        self.lines = []
        self.changed = threading.Condition()
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            with self.changed:
                self.lines.append(line.strip())
                self.changed.notify_all()

    def sees(self, pattern, after=0, limit=LIMIT):
        """The index behind the first line from `after` on that matches; 0 if none comes."""
        end = time.monotonic() + limit
        with self.changed:
            while True:
                for i, line in enumerate(self.lines[after:], after + 1):
                    if re.search(pattern, line):
                        return i
                left = end - time.monotonic()
                if left <= 0 or not self.changed.wait(left):
                    return 0

    def said(self):
        return len(self.lines)

    def code(self, limit=LIMIT):
        """Its code, once what it has said was read, too; what it has started may hold its output for longer."""
        try:
            code = self.process.wait(limit)
            self.reader.join(5)
            return code
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return "still there"


def node(number, *options):
    return Running(*inside(number, MWNODE, address, "--node", str(number), "--insecure", *options, "--", PROGRAM))


def controller(*words):
    return Running(*inside(0, PROGRAM, "--nodes", address, "2", *words))


def workers_left(agent):
    """Those of one agent, which are its children."""
    return [pid for pid in what_is_left() if parent_of(pid) == agent.process.pid]


def parent_of(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return int(stat.read().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0


def claim_soon(what, holds, limit):
    end = time.monotonic() + limit
    while not holds() and time.monotonic() < end:
        time.sleep(0.01)
    claim(what, holds())


def a_session_ends_well():
    # One may come before its controller, and one after it.
    first = node(0)
    drives = controller("10")
    drives.sees("waiting for 2 nodes")
    second = node(1)
    claim("a session over two nodes ends well", drives.code() == 0, drives.lines[-1:])
    claim("its steps are right", "10 steps, 0 wrong, 0 workers replaced" in drives.lines[-1], drives.lines[-3:])
    claim("its agents end with it, by 0", (first.code(), second.code()) == (0, 0), first.lines + second.lines)
    claim_nothing_is_left()


def nodes_come_and_go():
    first, second, drives = node(0), node(1), controller()
    claim("the steps begin", drives.sees(r"^step 1: \d+$"), drives.lines)
    of_second = workers_left(second)
    claim("a node has two workers", len(of_second) == 2, of_second)

    seen = drives.said()
    os.kill(of_second[0], signal.SIGKILL)
    claim("a killed worker is told of by its signal, and comes back on its node",
          drives.sees("was ended by SIGKILL.*it is pid", seen) and len(workers_left(second)) == 2, drives.lines[seen:])
    drives.sees(r"^step \d+: \d+$", drives.said())

    of_second = workers_left(second)
    seen = drives.said()
    second.process.send_signal(signal.SIGKILL)
    claim_soon("disco A54: the workers of a killed agent end within a second", lambda: not set(of_second) & set(what_is_left()), 1)
    claim("the step that needs them is an error", drives.sees(r"^step \d+: .*worker [23]", seen, 10), drives.lines[seen:])
    second.code()
    second = node(1)
    seen = drives.sees("it is pid", drives.sees("it is pid", seen))
    claim("another agent of that node brings both back", seen, drives.lines[-5:])
    claim("the next step is right", drives.sees(r"^step \d+: \d+$", seen), drives.lines[-5:])

    seen = drives.said()
    second.process.send_signal(signal.SIGTERM)
    claim("an agent that is told to end does, and says so by its code", second.code() == 128 + signal.SIGTERM,
          second.lines)
    second = node(1)
    claim("and may come again", drives.sees("it is pid", drives.sees("it is pid", seen)), drives.lines[-5:])

    if networks:
        seen = drives.said()
        networks.cut()
        claim("a node that is cut off ends its workers and itself", second.code() == 1, second.lines[-3:])
        claim("its controller goes on without it", drives.sees(r"^step \d+: .*worker [23]", seen, 15), drives.lines[seen:])
        networks.mend()
        second = node(1)
        seen = drives.sees("it is pid", drives.sees("it is pid", seen))
        claim("and it may come again once the cable is mended", drives.sees(r"^step \d+: \d+$", seen), drives.lines[-5:])

    wrong = [line for line in drives.lines if re.match(r"step (\d+): (\d+)$", line)
             and int(line.split()[-1]) != 8994 * int(re.match(r"step (\d+)", line)[1])]
    claim("no step was wrong", not wrong, wrong[:3])
    drives.process.kill()
    drives.process.wait()
    claim_soon("disco A63: all workers end within a second and a half of a kill of their controller", lambda: not what_is_left(), 1.5)
    claim("its agents end by 1, and say that it is gone", (first.code(), second.code()) == (1, 1),
          first.lines[-2:] + second.lines[-2:])
    claim_nothing_is_left()


def what_is_wrong_is_said():
    alone = node(0, "--wait", "0.5")
    claim("without a controller an agent ends in its time", alone.code() == 1, alone.lines)
    claim("and says where it looked for it", any(address in line for line in alone.lines), alone.lines)
    for words, says in (([], "CONTROLLER is required"), ([address, "--node", "0"], "PROGRAM is required"),
                        ([address, "--node", "0", "--secret-file", "/no/such", "--", "x"], "/no/such"),
                        (["nonsense", "--node", "0", "--", "x"], "nonsense"),
                        ([address, "--node", "-1", "--", "x"], "--node"),
                        ([address, "--node", "0", "--interface", "no0", "--", "x"], "no0")):
        bad = Running(*inside(0, MWNODE, *words))
        claim(f"a wrong line is refused by 2: {' '.join(words[1:])}",
              bad.code() == 2 and any(says in line for line in bad.lines), bad.lines)


try:
    a_session_ends_well()
    nodes_come_and_go()
    what_is_wrong_is_said()
finally:
    if networks:
        networks.remove()
raise SystemExit(bool(failures))
