"""The program that a test runs as its user would: what is claimed of it, and what it leaves behind."""
import os
import sys
import time

PROGRAM = os.path.abspath(sys.argv[1])
ARGUMENTS = sys.argv[2:]
failures = []
# All that is started here inherits it: another test may run the same program at the same time.
MARK = f"MANYWORLDS_TEST_RUN={os.getpid()}"
os.environ.update([MARK.split("=")])


def claim(what, holds, seen=""):
    print(("ok      " if holds else "FAILED  ") + what + (f" ({seen})" if seen != "" else ""))
    if not holds:
        failures.append(what)


def claim_nothing_is_left():
    """It starts all other processes from its own binary, and they inherit this test's mark. Some end after the one that
    was waited for."""
    end = time.monotonic() + 5
    while (found := what_is_left()) and time.monotonic() < end:
        time.sleep(0.02)
    claim("nothing is left running", not found, found)


def what_is_left():
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/exe") != PROGRAM:
                continue
            with open(f"/proc/{pid}/environ", "rb") as environment:
                if MARK.encode() in environment.read().split(b"\0"):
                    found.append(int(pid))
        except OSError:
            pass  # ended meanwhile, or another user's
    return found
