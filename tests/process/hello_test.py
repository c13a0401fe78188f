#!/usr/bin/env python3
"""The program that README.md shows and starts in two terminals: it says what it waits for, its
processes find each other, and either may be killed and started again.

usage: hello_test.py PROGRAM

Its port is fixed: it runs in a network of its own where that is allowed, else where the port is free.
"""
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time

from own_network import in_own_network, port_is_free
from watched_program import PROGRAM, claim, claim_nothing_is_left, failures

LIMIT = 40


class Terminal:
    """A process that writes to a terminal, as its user would see it."""

    def __init__(self, *arguments):
        self.seen = ""
        ours, theirs = pty.openpty()
        self.process = subprocess.Popen([PROGRAM, *arguments], stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        self.reader = threading.Thread(target=self.read, args=(ours,))
        self.reader.start()

    def read(self, ours):
        try:
            while data := os.read(ours, 4096):
                self.seen += data.decode()
        except OSError:
            pass  # The last process that wrote to it has ended.
        os.close(ours)

    def says(self, pattern, since=0):
        """Where what it says ends, once it has said it; -1 if it does not."""
        until = time.monotonic() + LIMIT
        while time.monotonic() < until:
            if found := re.search(pattern, self.seen[since:]):
                return since + found.end()
            if self.process.poll() is not None:
                break
            time.sleep(0.01)
        return -1

    def claim_says(self, what, pattern, since=0):
        end = self.says(pattern, since)
        claim(what, end >= 0, "" if end >= 0 else self.seen[-1500:])
        return max(end, 0)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.reader.join()


def main():
    one = Terminal("1")
    one.claim_says("rank 1 alone says which store it waits for, again and again",
                   r"(?s)127\.0\.0\.1:29500.*127\.0\.0\.1:29500")
    zero = Terminal("0")
    zero.claim_says("rank 0 receives", r"rank 0: round 3")
    one.claim_says("rank 1 receives", r"rank 1: round 3")

    seen = len(zero.seen)
    one.kill()
    seen = zero.claim_says("rank 0 says who died", rf"left@1 broken: rank 1 \(pid {one.process.pid}\) died", seen)
    seen = zero.claim_says("and what it waits for", r"rank 1 has not joined", seen)
    one = Terminal("1")
    zero.claim_says("it receives from the one that was started again", r"rank 0: round 2", seen)

    seen = len(one.seen)
    zero.kill()
    seen = one.claim_says("rank 1 says who died", rf"left@\d broken: rank 0 \(pid {zero.process.pid}\) died", seen)
    zero = Terminal()
    zero.claim_says("rank 0, started again without a word, hosts the store again", r"rank 0: round 2")
    one.claim_says("and rank 1 receives from it", r"rank 1: round 2", seen)
    one.kill()
    zero.kill()
    claim_nothing_is_left()
    return bool(failures)


if not in_own_network() and not port_is_free(29500):
    print("skipped: port 29500 is in use, and a network of its own is refused here")
    sys.exit(77)
sys.exit(main())
