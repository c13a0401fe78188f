#!/usr/bin/env python3
"""The demo tells the truth, ends by itself and when asked to, and leaves no process behind.

usage: quickstart_test.py PROGRAM
"""
import json
import os
import signal
import subprocess
import sys

PROGRAM = os.path.abspath(sys.argv[1])
failures = []


def claim(what, holds, seen=""):
    print(("ok      " if holds else "FAILED  ") + what + (f" ({seen})" if seen else ""))
    if not holds:
        failures.append(what)


def left_behind():
    """Processes of this program: the demo starts all others from its own binary."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/exe") == PROGRAM:
                found.append(int(pid))
        except OSError:
            pass  # ended meanwhile, or somebody else's
    return found


def run_to_the_end():
    done = subprocess.run([PROGRAM, "--json"], capture_output=True, text=True, timeout=60)
    claim("it ends with 0", done.returncode == 0, f"{done.returncode} {done.stderr[-500:]}")
    lines = done.stdout.splitlines()
    claim("standard output is one line", len(lines) == 1, f"{len(lines)} lines")
    seen = json.loads(lines[-1]) if lines else {}
    print(seen)
    claim("no healthy world lost anything", seen.get("healthy_lost") == 0)
    claim("every request was answered", seen.get("requests") == seen.get("answered") != 0)
    claim("requests of broken and suspect worlds were sent again", seen.get("retried", 0) >= 1)
    claim("a kill is noticed within a second", 0 < (seen.get("detect_ms") or -1) < 1000)
    # Silence counts from the last beat, which may have come a heartbeat before the stop.
    claim("a stopped worker is suspect at about a second", 700 < (seen.get("suspect_ms") or -1) < 2500)
    claim("the world forms again", 0 < (seen.get("reform_ms") or -1) < 10_000)
    claim("a transfer was cancelled half way", seen.get("cancelled_half_way") is True)
    claim("its buffer was free for the next", seen.get("buffer_reusable") is True)
    claim("nothing is left running", not left_behind(), left_behind())


def interrupt(number):
    demo = subprocess.Popen([PROGRAM], stdout=subprocess.PIPE, text=True)
    for line in demo.stdout:
        if "control   (MB/s)" in line:  # the worlds are up
            break
    demo.send_signal(number)
    rest, _ = demo.communicate(timeout=30)
    claim(f"{number.name} ends it with 0", demo.returncode == 0, demo.returncode)
    claim("what was asked has been answered first", " 0 unanswered" in rest)
    claim("nothing is left running", not left_behind(), left_behind())


run_to_the_end()
interrupt(signal.SIGINT)
interrupt(signal.SIGTERM)
sys.exit(bool(failures))
