"""What the programs of jobs leave behind, for tests: processes, sockets and memory."""
import os
import signal
import time

# It stands in the environment of all programs that are started after `begin`, with the folder of the test.
MARK = "MANYWORLDS_TEST_FOLDER"
had = set()


def begin(folder):
    os.environ[MARK] = os.path.realpath(folder)
    had.clear()


def left_in(folder):
    """Returns the processes, this one apart, the command line or the environment of which names that folder."""
    found = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as line, open(f"/proc/{pid}/environ", "rb") as environment:
                if pid != os.getpid() and folder.encode() in line.read() + environment.read():
                    found.append(pid)
        except OSError:
            continue
    return found


def end_what_is_left(folder):
    """A claim that failed leaves its job: its programs end with it."""
    for pid in left_in(folder):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def open_in(pid):
    """Returns what a process has open that could outlive it: sockets, memory without a name, files in /dev/shm."""
    found = set()
    try:
        for each in os.listdir(f"/proc/{pid}/fd"):
            name = os.readlink(f"/proc/{pid}/fd/{each}")
            if name.startswith(("socket:", "/dev/shm/")):
                found.add(name)
            elif name.startswith("/memfd:"):
                found.add(f"{name} {os.stat(f'/proc/{pid}/fd/{each}').st_ino}")
    except OSError:
        pass  # It has ended, or closed it.
    return found


def named_sockets():
    """Returns the sockets of this machine that have a name or a port, as `open_in` calls them."""
    found = set()
    for table, inode, length in (("unix", 6, 8), ("tcp", 9, 10), ("tcp6", 9, 10)):
        with open(f"/proc/net/{table}", encoding="utf-8", errors="replace") as file:
            lines = [line.split() for line in file][1:]
        found.update(f"socket:[{line[inode]}]" for line in lines if len(line) >= length)
    return found


def look():
    """Remembers what the programs of the test have open that run now."""
    for pid in left_in(os.environ[MARK]):
        had.update(open_in(pid))


def remains():
    """Returns what is left."""
    processes = []
    for pid in left_in(os.environ[MARK]):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                processes.append(f"{pid} {file.read().decode(errors='replace')}")
        except OSError:
            continue
    theirs = had - open_in(os.getpid())
    still = {name for name in theirs if name.startswith("/dev/shm/") and os.path.exists(name)}
    still |= theirs & named_sockets()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        still |= theirs & open_in(pid)
    return processes + sorted(still)


def need_nothing(limit=30):
    """graph B64, G-f: after any case neither a process is left, nor a socket or memory that one had."""
    assert had, "nothing was looked at while there were jobs"
    end = time.monotonic() + limit
    while left := remains():
        assert time.monotonic() < end, f"this is left: {left}"
        time.sleep(0.05)
