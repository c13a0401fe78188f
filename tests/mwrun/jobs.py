"""Jobs that a test starts by mwrun, and what is seen of them."""
import os
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../process"))
import watched_program  # noqa: E402
from watched_program import PROGRAM  # noqa: E402

LIMIT = 60
SETS = re.compile(r"RANK|WORLD_SIZE|LOCAL_|GROUP_|ROLE_|MASTER_|TORCH|MANYWORLDS_(?!TEST)|OMP_|PET_|CUDA_")
CLEAN = {name: value for name, value in os.environ.items() if not SETS.match(name)}


def claim(what, holds, seen=""):
    watched_program.claim(what, holds, "" if holds else seen)


def start(*words, environment=None):
    return subprocess.Popen([PROGRAM, *words], env=environment or CLEAN, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, start_new_session=True)


def finish(process, limit=LIMIT):
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        err += b"\n(it did not end in time)"
    return process.returncode, out.decode(errors="replace"), err.decode(errors="replace")


def run(*words, environment=None, limit=LIMIT):
    return finish(start(*words, environment=environment), limit)


def shell(script, *options, environment=None):
    return run(*options, "--no-python", "sh", "-c", script, environment=environment)


def stat_of(pid):
    """The fields of /proc/PID/stat behind the name: the state, the parent, the process group, the session."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
        return stat.read().rpartition(")")[2].split()


def agent_of(guard):
    """mwrun is two processes: the one that was started is the guard, and its child starts the workers."""
    def found():
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/comm", encoding="ascii", errors="replace") as name:
                    if int(stat_of(pid)[1]) == guard and name.read() == "mwrun-agent\n":
                        return int(pid)
            except OSError:
                pass  # ended meanwhile
        return None
    if not until(found):
        raise AssertionError(f"{guard} has no agent")
    return found()


def is_gone(pid):
    try:
        return stat_of(pid)[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def until(holds, limit=20):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.02)
    return False
