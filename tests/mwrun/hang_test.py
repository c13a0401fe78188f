#!/usr/bin/env python3
"""Workers of mwrun that get stuck: who is named, what is written, what is ended and what goes on.

usage: hang_test.py MWRUN LAUNCHED

The numbers are those of the acceptance cases L. Where MANYWORLDS_TEST_LONG is set, the FileTimerClient of a real
PyTorch runs (MANYWORLDS_TORCH_PYTHON is its interpreter, such as `chroot /srv/trixie python3`).
"""
import contextlib
import glob
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../process"))
import watched_program  # noqa: E402
from jobs import agent_of  # noqa: E402
from watched_program import ARGUMENTS, PROGRAM, claim_nothing_is_left, failures  # noqa: E402

LAUNCHED = os.path.abspath(ARGUMENTS[0])
SETS = re.compile(r"RANK|WORLD_SIZE|LOCAL_|GROUP_|ROLE_|MASTER_|TORCH|MANYWORLDS_(?!TEST)|OMP_|PET_|CUDA_")
CLEAN = {name: value for name, value in os.environ.items() if not SETS.match(name)}
# Between the limit of 2 s and this a worker that is stuck is named, also on a machine that is busy.
IN_TIME = 10


def claim(what, holds, seen=""):
    watched_program.claim(what, holds, "" if holds else seen)


class Job:
    """A run of mwrun that is listened to."""

    def __init__(self, *words, environment=None):
        self.process = subprocess.Popen([PROGRAM, *words], env=environment or CLEAN, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, start_new_session=True, text=True, errors="replace")
        self.lines = []
        self.listener = threading.Thread(target=self.listen)
        self.listener.start()

    def listen(self):
        for line in self.process.stdout:
            self.lines.append(line)

    def says(self, pattern, limit=30.0):
        """The first match within the limit, of what was said so far and what comes."""
        end = time.monotonic() + limit
        while time.monotonic() < end:
            found = re.search(pattern, self.text())
            if found:
                return found
            time.sleep(0.02)
        return None

    def text(self):
        return "".join(self.lines)

    def wait(self, limit=30.0):
        try:
            self.process.wait(limit)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.listener.join()
        return self.process.returncode

    def agent(self):
        return agent_of(self.process.pid)

    def end(self):
        """The first signal ends the workers, and the second kills those that do not hear it."""
        for _ in range(2):
            with contextlib.suppress(ProcessLookupError):
                self.process.terminate()
            time.sleep(0.3)
        return self.wait()


@contextlib.contextmanager
def job(*words, environment=None):
    running = Job(*words, environment=environment)
    try:
        yield running
    finally:
        running.end()


def pids_of(text):
    return {int(rank): int(pid) for rank, pid in re.findall(r"RANK (\d+) PID (\d+)", text)}


WAITS = ["--no-python", "sh", "-c", "echo RANK $RANK PID $$; while :; do sleep 0.05; done"]


def stopped():
    with job("--nproc-per-node=2", *WAITS) as running:
        running.says("RANK 1 PID")
        os.kill(pids_of(running.text())[1], signal.SIGSTOP)
        claim("L29 without a limit a stopped worker is let be", not running.says("stuck", 4), running.text())
        os.kill(pids_of(running.text())[1], signal.SIGCONT)
    with job("--nproc-per-node=2", "--hang-timeout=2", *WAITS) as running:
        running.says("RANK 1 PID")
        began = time.monotonic()
        pid = pids_of(running.text())[1]
        os.kill(pid, signal.SIGSTOP)
        claim("L29 with one it is named", running.says(rf"rank 1 \(pid {pid}\) is stuck: it is stopped for \d", IN_TIME),
              running.text())
        took = time.monotonic() - began
        code = running.wait()
        claim("L29 after the limit, and is killed", code == 1 and took > 1.9 and "SIGKILL" in running.text(),
              (code, took, running.text()))
        claim("L29 the summary says why, too", re.search(r"traceback : Signal 9 \(SIGKILL\) received by PID \d+, since it "
                                                         r"was stuck: it is stopped for \d", running.text()),
              running.text())
        print(f"        {took:.2f} s from the signal to the verdict, limit 2 s")
    with job("--nproc-per-node=2", "--hang-timeout=2", "--restart-scope=worker", "--max-restarts=1", *WAITS) as running:
        running.says("RANK 1 PID")
        pid = pids_of(running.text())[1]
        os.kill(pid, signal.SIGSTOP)
        claim("L29 and is started again, alone", running.says(r"rank 1 started again as pid \d+, incarnation 2", 20),
              running.text())
        claim("a script that reports nothing is named at its first replacement", running.says(
            r"rank 1 reports nothing to its agent; PyTorch's groups cannot form again in place: use --restart-scope "
            "group"), running.text())
        claim("no other is touched", len(re.findall("RANK 0 PID", running.text())) == 1 and
              running.text().count("stuck") == 1, running.text())


def members():
    """Members of a world, of which one gets stuck: it is named, and it alone."""
    cases = {"loops": "a task holds its reactor", "blocks": "a task holds its reactor",
             "stands-still": "it tells no progress, and waits for no member,"}
    for how, reason in cases.items():
        with tempfile.TemporaryDirectory() as logs, job(
                "--nproc-per-node=3", "--hang-timeout=2", "--restart-scope=worker", "--max-restarts=1", "--tee=3",
                f"--log-dir={logs}", "--no-python", LAUNCHED, how, "1") as running:
            claim(f"L65 a member that {how} is there", running.says(f"rank 1 {how}"), running.text())
            claim("L65 it is named, with who waits for it in which operation", running.says(
                rf"rank 1 \(pid \d+\) is stuck: {reason} for [^;]*; rank 0 waits in all_reduce of main, "
                "rank 2 waits in all_reduce of main\n", IN_TIME), running.text())
            claim("L65 it is started again, and the world is up", running.says(
                r"rank 1 started again as pid \d+, incarnation 2, after [^;]*; world main up again after \d", 20),
                  running.text())
            time.sleep(1)
            claim("L65 those that waited for it are not accused", running.text().count("is stuck") == 1 and
                  running.process.poll() is None, running.text())
            dumps = dumps_in(logs)
            claim("L29 its dump and those of its accusers are in the log folder", sorted(dumps) == list("012") and
                  all("runtime" in text for text in dumps.values()) and "all_reduce" in dumps["0"],
                  (sorted(dumps), dumps.get("0")))
    with job("--nproc-per-node=3", "--hang-timeout=2", "--restart-scope=worker", "--max-restarts=9", "--no-python",
             LAUNCHED, "meets") as running:
        time.sleep(1)
        children = workers_of(running.agent())
        claim("three members meet", len(children) == 3, children)
        os.kill(children[2], signal.SIGSTOP)
        claim("L65 a member that is stopped is named, with those that wait for it", running.says(
            r"rank \d \(pid \d+\) is stuck: it is stopped(, and silent)? for [^;]*; rank \d waits in all_reduce of main", IN_TIME),
              running.text())
        claim("and is replaced", running.says(r"incarnation 2, after [^;]*; world main up again", 20), running.text())
        claim("L65 it alone", running.text().count("is stuck") == 1 and
              set(children) - {children[2]} <= set(workers_of(running.agent())), running.text())


@contextlib.contextmanager
def two_nodes(logs, *words):
    """Nodes of one and of two workers; the first has rank 0."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = ["--nnodes=2", "--rdzv-backend=tcp", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=hangs",
              "--hang-timeout=2", "--restart-scope=worker", "--max-restarts=1", "--tee=3", "--no-python", LAUNCHED]
    with job("--nproc-per-node=1", f"--log-dir={logs}/first", *common, *words) as first:
        first.says("rendezvous", 1)
        with job("--nproc-per-node=2", f"--log-dir={logs}/second", *common, *words) as second:
            yield first, second


def dumps_in(logs):
    found = {}
    for path in glob.glob(f"{logs}/*/attempt_0/*/dump.1.txt"):
        with open(path, encoding="utf-8", errors="replace") as file:
            found[path.split("/")[-2]] = file.read()
    return found


def between_nodes():
    """Workers of other nodes accuse: what is stuck is named by its own agent, and all agents say so."""
    with tempfile.TemporaryDirectory() as logs, two_nodes(logs, "falls-silent", "0") as nodes:
        alone, pair = nodes if nodes[0].says("rank 0 falls-silent", 5) else reversed(nodes)
        claim("L65 a worker is there that sends nothing, and is not stopped", alone.says("rank 0 falls-silent"),
              alone.text() + pair.text())
        claim("L65 a worker that is silent is named by what those of another node say", alone.says(
            r"rank 0 \(pid \d+\) is stuck: it is silent, also to its peers, for [^;\n]*", 15), alone.text() + pair.text())
        claim("its agent's verdict is told by the others", pair.says(r"on \S+, rank 0 \(pid \d+\) is stuck"), pair.text())
        claim("it is started again", alone.says(r"rank 0 started again as pid \d+, incarnation 2", 20), alone.text())
        claim("and the world is up", pair.process.poll() is None and alone.says("world main up again", 20), alone.text())
        claim("L65 those that waited for it are not accused", (alone.text() + pair.text()).count("is stuck") == 2,
              alone.text() + pair.text())
    with tempfile.TemporaryDirectory() as logs, two_nodes(logs, "loops", "0") as nodes:
        alone, pair = nodes if nodes[0].says("rank 0 loops", 5) else reversed(nodes)
        claim("L65 who waits for it on other nodes is in the line", alone.says(
            r"rank 0 \(pid \d+\) is stuck: a task holds its reactor for [^;\n]*; rank 1 waits in all_reduce of main, rank 2 "
            "waits in all_reduce of main", 15), alone.text())
        claim("it is started again", alone.says(r"rank 0 started again as pid \d+, incarnation 2.*up again", 20), alone.text())
        dumps = dumps_in(f"{logs}/first") | {f"far {name}": text for name, text in dumps_in(f"{logs}/second").items()}
        if alone is not nodes[0]:
            dumps = dumps_in(f"{logs}/second") | {f"far {n}": text for n, text in dumps_in(f"{logs}/first").items()}
        claim("L29 its accusers' dumps are in the log folders of their nodes", sorted(dumps) == ["0", "far 0", "far 1"] and
              "all_reduce" in dumps["far 0"], (sorted(dumps), dumps.get("far 0")))


def workers_of(agent):
    with open(f"/proc/{agent}/stat", encoding="ascii") as stat:
        assert stat.read()
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
                state, parent = stat.read().rpartition(")")[2].split()[:2]
            if int(parent) == agent and state not in "ZX" and os.readlink(f"/proc/{pid}/exe") == LAUNCHED:
                found.append(int(pid))
    return sorted(found)


SLOW_OPERATIONS = 8  # as the program has them
TAKES = 0.35


def serve_disk(fifo):
    """Ends one operation after the other, each of which waits until its FIFO is opened for writing."""
    for number in range(SLOW_OPERATIONS):
        time.sleep(TAKES)
        end = time.monotonic() + 5
        while time.monotonic() < end:
            with contextlib.suppress(OSError):  # nothing waits yet
                os.close(os.open(f"{fifo}{number}", os.O_WRONLY | os.O_NONBLOCK))
                break
            time.sleep(0.01)


def drain_slowly(fifo):
    """Takes what one write gives, after that time."""
    with open(fifo, "rb", buffering=0) as pipe:
        for _ in range(SLOW_OPERATIONS):
            time.sleep(TAKES)
            left = 1 << 16
            while left > 0 and (got := pipe.read(left)):
                left -= len(got)


def slow_disk():
    """Each operation ends below the limit of 1.5 s, and all of them together above it."""
    for how, serve in (("waits-for-disk", serve_disk), ("writes", drain_slowly)):
        with tempfile.TemporaryDirectory() as folder:
            fifo = os.path.join(folder, "fifo")
            for number in ["", *range(SLOW_OPERATIONS)]:
                os.mkfifo(f"{fifo}{number}")
            # So that the test ends whatever the worker does.
            keeps_it = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
            server = threading.Thread(target=serve, args=(fifo,), daemon=True)
            with job("--nproc-per-node=2", "--hang-timeout=1.5", "--no-python", LAUNCHED, how, "1", fifo) as running:
                claim(f"L65 a member that {how} is there", running.says(f"rank 1 {how}"), running.text())
                began = time.monotonic()
                server.start()
                written = running.says("rank 1 has written")
                took = time.monotonic() - began
                claim("L65 it uses its slow disk for longer than the limit", written and took > 2,
                      (took, running.text()))
                claim("L65 and is not accused, nor is the one that waits for it", not running.says("stuck", 0.5) and
                      running.process.poll() is None, running.text())
            server.join(10)
            os.close(keeps_it)


def frozen():
    """What was held up itself accuses none."""
    with job("--nproc-per-node=3", "--hang-timeout=1", "--no-python", LAUNCHED, "meets") as running:
        time.sleep(1)
        os.kill(running.agent(), signal.SIGSTOP)
        time.sleep(3)
        os.kill(running.agent(), signal.SIGCONT)
        claim("L65 an agent that was frozen accuses none", not running.says("stuck", 2.5) and
              running.process.poll() is None, running.text())
        everyone = workers_of(running.agent()) + [running.process.pid, running.agent()]
        for pid in everyone:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(1.5)
        for pid in everyone:
            os.kill(pid, signal.SIGCONT)
        claim("L65 on a machine that was frozen none is accused", not running.says("stuck", 2.5) and
              running.process.poll() is None, running.text())


SPAWNS = """
import os, tempfile, time
print("RANK", os.environ["RANK"], "PID", os.getpid(), flush=True)
if os.environ["RANK"] == "1" and os.environ["MANYWORLDS_INCARNATION"] == "1":
    fifo = tempfile.mkdtemp() + "/fifo"
    os.mkfifo(fifo)
    os.posix_spawn("/bin/true", ["true"], os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 0, fifo, os.O_RDONLY, 0)])
while True:
    time.sleep(0.05)
"""


def in_the_kernel():
    with tempfile.TemporaryDirectory() as folder, job(
            "--nproc-per-node=2", "--hang-timeout=2", "--restart-scope=worker", "--max-restarts=1", "--no-python",
            sys.executable, "-c", SPAWNS, environment={**CLEAN, "TMPDIR": folder}) as running:
        running.says("RANK 1 PID")
        claim("L65 a worker in uninterruptible sleep is named", running.says(
            r"rank 1 \(pid \d+\) is stuck: it is in uninterruptible sleep for", IN_TIME), running.text())
        claim("and replaced once it has ended", running.says(r"rank 1 started again as pid \d+, incarnation 2", 20) and
              running.text().count("RANK 1 PID") <= 2, running.text())
    with tempfile.TemporaryDirectory() as folder, job(
            "--nproc-per-node=2", "--no-python", sys.executable, "-c", SPAWNS,
            environment={**CLEAN, "TMPDIR": folder, "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT": "1"}) as running:
        claim("torch's variable limits uninterruptible sleep without --hang-timeout", running.says(
            r"rank 1 \(pid \d+\) is stuck: it is in uninterruptible sleep for", IN_TIME), running.text())


def output():
    with tempfile.TemporaryDirectory() as logs:
        script = ("echo begin; [ $RANK = 1 ] || sleep 0.5; i=0; while [ $RANK = 0 ] && [ $i -lt 30 ]; do echo line; "
                  "i=$((i+1)); sleep 0.1; done; exec sleep 60")
        with job("--nproc-per-node=2", "--hang-timeout=2", "--redirects=3", f"--log-dir={logs}", "--no-python", "sh",
                 "-c", script) as running:
            began = time.monotonic()
            claim("L29 scripts that all write nothing are stuck, by the one that ceased first", running.says(
                r"rank 1 \(pid \d+\) is stuck: it writes nothing for", 20) and time.monotonic() - began > 4,
                  (time.monotonic() - began, running.text()))
        with job("--nproc-per-node=2", "--hang-timeout=1", "--no-python", "sh", "-c", "exec sleep 4") as running:
            claim("L29 silence on the console says nothing", running.wait() == 0, running.text())


def deadlines():
    with job("--nproc-per-node=2", "--restart-scope=worker", "--max-restarts=1", "--no-python", LAUNCHED, "overruns",
             "1") as running:
        claim("a worker that overruns its deadline is ended", running.says(
            r'rank 1 \(pid \d+\) has overrun its deadline "a step": it is ended\n(.*\n)*?'
            r".*killed by signal 9 \(SIGKILL\)"), running.text())
        claim("and started again", running.says(r"rank 1 started again as pid \d+, incarnation 2.*up again"),
              running.text())
    timers = {**CLEAN, "TORCHELASTIC_ENABLE_FILE_TIMER": "1"}
    line = '{"version": 1, "pid": %s, "scope_id": "%s", "expiration_time": %s, "signal": %d}'
    script = ("echo no timer > $TORCHELASTIC_TIMER_FILE; "
              f"printf '{line}\\n' $$ kept $(($(date +%s) + 1)) 9 > $TORCHELASTIC_TIMER_FILE; "
              f"printf '{line}\\n' $$ kept -1 0 > $TORCHELASTIC_TIMER_FILE; "
              f"printf '{line}\\n' $PPID mwrun 1 9 > $TORCHELASTIC_TIMER_FILE; sleep 1.5; echo lives; "
              f"printf '{line}\\n' $$ overrun $(($(date +%s) + 1)) 15 > $TORCHELASTIC_TIMER_FILE; sleep 20")
    with job("--no-python", "sh", "-c", script, environment=timers) as running:
        code = running.wait()
        claim("L41 a file timer that was let go ends no worker, nor does one of another process",
              "lives" in running.text(), running.text())
        claim("L41 one that is overrun does, by its signal", code == 1 and 'overrun its deadline "overrun"' in
              running.text() and "SIGTERM" in running.text(), (code, running.text()))
    with job("--no-python", "sh", "-c", "echo file=$TORCHELASTIC_TIMER_FILE") as running:
        running.wait()
        claim("L41 without the variable there is no pipe", "file=\n" in running.text(), running.text())


CLIENT = """
import os, time
from torch.distributed.elastic.timer import FileTimerClient, configure, expires
configure(FileTimerClient(os.environ["TORCHELASTIC_TIMER_FILE"]))
with expires(after=60):
    pass
print("kept", flush=True)
with expires(after=1):
    time.sleep(30)
"""


def torch_timers():
    python = shlex.split(os.environ.get("MANYWORLDS_TORCH_PYTHON", "/usr/bin/python3"))
    if not os.environ.get("MANYWORLDS_TEST_LONG") or subprocess.run(
            [*python, "-c", "import torch"], stderr=subprocess.DEVNULL, check=False).returncode:
        print("skipped: L41 PyTorch's FileTimerClient (MANYWORLDS_TEST_LONG and MANYWORLDS_TORCH_PYTHON)")
        return
    chosen = {**CLEAN, "TORCHELASTIC_ENABLE_FILE_TIMER": "1"}
    if "MANYWORLDS_TEST_TIMER_FILE" in os.environ:
        chosen["TORCHELASTIC_TIMER_FILE"] = os.environ["MANYWORLDS_TEST_TIMER_FILE"]
    with job("--no-python", *python, "-c", CLIENT, environment=chosen) as running:
        code = running.wait(60)
        claim("L41 PyTorch's own client arms a timer, overruns, and is ended", code == 1 and "kept" in running.text() and
              "has overrun its deadline" in running.text(), (code, running.text()))


for part in (stopped, members, slow_disk, between_nodes, frozen, in_the_kernel, output, deadlines, torch_timers):
    part()
claim_nothing_is_left()
sys.exit(bool(failures))
