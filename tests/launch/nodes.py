"""Nodes of a rendezvous as processes, for the tests that start, watch and kill them."""
import re
import signal
import subprocess
import sys
import threading
import time

NODE = sys.argv[1]
LIMIT = 30  # seconds for each wait
failures = []
cases = 0


class Node:
    """A process, and what it says, with the time of each line."""

    def __init__(self, backend, endpoint, run, least=2, most=3, last_call_ms=300, join_ms=60000, rank=0,
                 through=()):
        self.lines = []
        self.changed = threading.Condition()
        self.process = subprocess.Popen(
            [*through, NODE, backend, endpoint, run, str(least), str(most), str(last_call_ms), str(join_ms),
             str(rank)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            with self.changed:
                self.lines.append(line.strip())
                self.changed.notify_all()

    def wait_for(self, pattern, after=0):
        """The first line from `after` on that matches, as a match."""
        end = time.monotonic() + LIMIT
        with self.changed:
            while True:
                for line in self.lines[after:]:
                    found = re.search(pattern, line)
                    if found:
                        return found
                left = end - time.monotonic()
                if left <= 0 or not self.changed.wait(left):
                    raise AssertionError(f"no {pattern!r} within {LIMIT} s in {self.lines}")

    def says(self, pattern):
        return any(re.search(pattern, line) for line in list(self.lines))

    def kill(self, how=signal.SIGKILL):
        self.process.send_signal(how)


def case(name, body):
    global cases
    cases += 1
    try:
        body()
    except AssertionError as e:
        failures.append(name)
        print(f"FAILED {name}: {e}")


def places(nodes, number, size):
    """The places of all nodes in that round, which must have that size."""
    found = [node.wait_for(rf"round {number} nodes {size} place (\d+)") for node in nodes]
    return [int(f.group(1)) for f in found]


def end(nodes):
    for node in nodes:
        node.process.kill()
        node.process.wait()


def conclude():
    print(f"[doctest] test cases: {cases} | {cases - len(failures)} passed | {len(failures)} failed")
    sys.exit(1 if failures else 0)
