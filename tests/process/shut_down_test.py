#!/usr/bin/env python3
"""The example of shutting down: processes that are terminated end with 0, and no call breaks."""
import signal
import socket
import subprocess
import sys
import threading
import time

program = sys.argv[1]
limit = 60


def free_address():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return "127.0.0.1:%d" % s.getsockname()[1]


class Process:
    def __init__(self, role, address):
        self.role = role
        self.lines = []
        self.more = threading.Condition()
        self.child = subprocess.Popen([program, role, address], stdout=subprocess.PIPE, text=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.child.stdout:
            with self.more:
                self.lines.append(line)
                self.more.notify_all()

    def until(self, beginning):
        """Until it has said a line that begins so."""
        end = time.monotonic() + limit
        with self.more:
            while not any(line.startswith(beginning) for line in self.lines):
                if not self.more.wait(end - time.monotonic()) or not self.reader.is_alive():
                    fail(f"{self.role} did not say '{beginning}'", self)

    def terminate(self, number):
        began = time.monotonic()
        self.child.send_signal(number)
        try:
            self.child.wait(limit)
        except subprocess.TimeoutExpired:
            fail(f"{self.role} did not end", self)
        self.reader.join(limit)
        if self.child.returncode != 0:
            fail(f"{self.role} ended with {self.child.returncode}", self)
        # Far less than its drain of 30 s, since nothing is open soon.
        if time.monotonic() - began > 20:
            fail(f"{self.role} took its whole drain", self)


def fail(why, process):
    print(why + "; it said:\n" + "".join(process.lines))
    for each in everyone:
        each.child.kill()
    sys.exit(1)


everyone = []
address = free_address()
for role in ("leader", "worker", "worker"):
    everyone.append(Process(role, address))
leader, first, second = everyone
leader.until("answered 3")
first.terminate(signal.SIGTERM)
answered = len([line for line in leader.lines if line.startswith("answered")])
leader.until(f"answered {answered + 5}")
second.terminate(signal.SIGINT)
leader.terminate(signal.SIGTERM)
if any(line.startswith("broken") for line in leader.lines):
    fail("a call broke", leader)
