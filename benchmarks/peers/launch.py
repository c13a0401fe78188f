"""Launching a job's workers: mwrun beside torchrun, in one run, in turns. See README.md."""

import argparse
import os
import select
import shlex
import shutil
import signal
import socket
import statistics
import subprocess
import time

from machine import Busy, machine, text_of
from notes import Notes
from programs import LIMIT_S, Failed, version_in
from tables import OURS, number, ratio
from turns import present_of, turns_of

TORCHRUN = "torchrun"
WORKERS = 2
# A launcher that has not noticed a death by then does not.
NEVER_S = 5


def now_ns():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


class Launcher:
    def __init__(self, name, command, package, programs, show_version, ours):
        self.name = name
        self.command = command
        self.package = package
        self.programs = programs
        self.show_version = show_version
        self.ours = ours

    def missing(self):
        return not self.command or not shutil.which(self.command[0])

    def version(self):
        return version_in(self.show_version)

    def program(self, name):
        return os.path.join(self.programs, name)


class Job:
    """A job that runs: its lines, its workers, its agent."""

    def __init__(self, launcher, options, words, workers=WORKERS):
        self.process = subprocess.Popen(
            [*launcher.command, "--standalone", f"--nproc-per-node={workers}", *options, "--no-python", *words],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
            env={name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")})
        self.rest = b""
        self.pids = set()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """What a launcher leaves is ended here."""
        for pid in {self.process.pid, agent_of(self.process.pid), *self.pids}:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()
        self.process.stdout.close()

    def line(self, limit_s=LIMIT_S):
        """(what, of which, pid, ns) of the next line."""
        end = time.monotonic() + limit_s
        while b"\n" not in self.rest:
            left = max(0, end - time.monotonic())
            if not select.select([self.process.stdout], [], [], left)[0]:
                raise Failed("a worker did not tell what it was to tell")
            some = os.read(self.process.stdout.fileno(), 65536)
            if not some:
                raise Failed("the job ended early")
            self.rest += some
        line, _, self.rest = self.rest.partition(b"\n")
        what, which, pid, stamp = line.decode().split()
        self.pids.add(int(pid))
        return what, which, int(pid), int(stamp)

    def await_lines(self, what, count):
        """The lines of that kind, by what they are of."""
        found = {}
        while len(found) < count:
            said, which, pid, stamp = self.line()
            if said == what:
                found[which] = (pid, stamp)
        return found

    def wait(self, limit_s=LIMIT_S):
        try:
            self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise Failed(f"the job did not end within {limit_s} s") from None


class Nodes(Job):
    """A job of several nodes on this machine, with a worker each."""

    def __init__(self, launcher, options, words):
        with socket.socket() as some:
            some.bind(("127.0.0.1", 0))
            port = some.getsockname()[1]
        self.command = [*launcher.command, "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=job",
                        "--nproc-per-node=1", *options, "--no-python", *words]
        self.processes = []
        self.rests = {}
        self.pids = set()

    def add(self, count=1):
        """The moment before the last one starts."""
        for _ in range(count):
            at = now_ns()
            self.processes.append(subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                start_new_session=True,
                env={name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}))
        return at

    def __exit__(self, *_):
        for process in self.processes:
            self.process, self.rest = process, b""
            super().__exit__()

    def line(self, limit_s=LIMIT_S):
        end = time.monotonic() + limit_s
        while True:
            for one, rest in self.rests.items():
                if b"\n" in rest:
                    line, _, self.rests[one] = rest.partition(b"\n")
                    what, which, pid, stamp = line.decode().split()
                    self.pids.add(int(pid))
                    return what, which, int(pid), int(stamp)
            pipes = [one.stdout for one in self.processes if self.rests.get(one.stdout) != b"\0"]
            ready = select.select(pipes, [], [], max(0, end - time.monotonic()))[0]
            if not ready:
                raise Failed("a worker did not tell what it was to tell")
            for one in ready:
                some = os.read(one.fileno(), 65536)
                # The mark of a pipe that has ended.
                self.rests[one] = self.rests.get(one, b"") + some if some else b"\0"

    def await_ranks(self, size, limit_s=30):
        """The last line of a start of each rank, once that many have started anew."""
        found = {}
        while len(found) < size:
            said, which, pid, stamp = self.line(limit_s)
            if said == "start":
                found[which] = (pid, stamp)
        return found

    def node_of(self, pid):
        with open(f"/proc/{pid}/stat") as stat:
            parent = int(stat.read().rpartition(")")[2].split()[1])
        return next(one for one in self.processes if agent_of(one.pid) == parent)


def kill(pid):
    """The moment before it."""
    at = now_ns()
    os.kill(pid, signal.SIGKILL)
    return at


def whole_run(launcher, options):
    took = []
    for _ in range(options.runs if launcher.ours else max(3, options.runs // 20)):
        begin = now_ns()
        with Job(launcher, [], ["/bin/true"]) as job:
            job.wait()
            took.append((now_ns() - begin) / 1e6)
    return summary("2 x /bin/true, whole run", took)


def exit_to_sigterm(launcher, options):
    took = []
    for _ in range(options.kills if launcher.ours else max(3, options.kills // 4)):
        with Job(launcher, [], [launcher.program("mwbench-launched"), "obey"]) as job:
            workers = job.await_lines("start", WORKERS)
            time.sleep(0.1)
            at = kill(workers["1"][0])
            took.append((job.await_lines("term", 1)["0"][1] - at) / 1e6)
            job.wait()
    return summary("a worker killed, to SIGTERM at its local peer", took)


def sigterm_at_another_node(launcher, options):
    took = []
    what = "a worker killed, to SIGTERM at another node's worker"
    for _ in range(options.kills if launcher.ours else 1):
        with Nodes(launcher, ["--nnodes=2"], [launcher.program("mwbench-launched"), "obey"]) as job:
            job.add(2)
            workers = job.await_ranks(2)
            time.sleep(0.1)
            at = kill(workers["1"][0])
            try:
                while True:
                    said, which, _, stamp = job.line(2 * NEVER_S)
                    if (said, which) == ("term", "0"):
                        break
            except Failed:
                return {what: {"never": f"not within {2 * NEVER_S} s"}}
            took.append((stamp - at) / 1e6)
    return summary(what, took)


def another_node(launcher, options):
    took = []
    what = "a third node comes to two, to all workers running"
    for _ in range(options.kills // 2 if launcher.ours else 1):
        with Nodes(launcher, ["--nnodes=1:3", "--rdzv-conf=last_call_timeout=1"],
                   [launcher.program("mwbench-launched"), "obey"]) as job:
            job.add(2)
            job.await_ranks(2)
            time.sleep(0.3)
            at = job.add()
            try:
                took.append((max(stamp for _, stamp in job.await_ranks(3, 4 * NEVER_S).values()) - at) / 1e6)
            except Failed:
                return {what: {"never": f"not within {4 * NEVER_S} s"}}
    return summary(what, took)


def node_lost(launcher, options):
    took = []
    what = "an agent killed, to the other nodes' workers running"
    for _ in range(options.kills // 2 if launcher.ours else 1):
        with Nodes(launcher, ["--nnodes=2:3", "--max-restarts=1", "--rdzv-conf=last_call_timeout=20"],
                   [launcher.program("mwbench-launched"), "obey"]) as job:
            job.add(3)
            workers = job.await_ranks(3)
            time.sleep(0.2)
            # The first node serves the stores: its end would be another case.
            lost = next(one for one in reversed(job.processes) if one is not job.processes[0])
            if job.node_of(workers["0"][0]) is lost:
                lost = next(one for one in job.processes[1:] if one is not lost)
            agent = agent_of(lost.pid)
            at = kill(agent)
            try:
                took.append((max(stamp for _, stamp in job.await_ranks(2, 4 * NEVER_S).values()) - at) / 1e6)
            except Failed:
                return {what: {"never": f"not within {4 * NEVER_S} s"}}
    return summary(what, took)


def replacement(launcher, options):
    """torchrun starts all again."""
    more = ["--restart-scope=worker"] if launcher.ours else []
    took = []
    count = options.kills if launcher.ours else 3
    with Job(launcher, [*more, f"--max-restarts={count}"],
             [launcher.program("mwbench-launched"), "obey"]) as job:
        pid = job.await_lines("start", WORKERS)["1"][0]
        for _ in range(count):
            time.sleep(0.2)
            at = kill(pid)
            found = job.await_lines("start", 1 if launcher.ours else WORKERS)
            pid = found["1"][0]
            took.append((max(stamp for _, stamp in found.values()) - at) / 1e6)
    what = "a worker killed, to its replacement's first instruction"
    return summary(what, took)


def worlds_again(launcher, options):
    """Of four workers each has a world with each other one."""
    took = []
    with Job(launcher, ["--restart-scope=worker", f"--max-restarts={options.kills}"],
             [launcher.program("mwbench-launched-worlds")], workers=4) as job:
        ends = {}

        def count_up(wanted):
            """The time of the last line of that many."""
            last = 0
            for _ in range(wanted):
                said, which, pid, stamp = job.line()
                ends.setdefault(which, []).append(pid)
                last = max(last, stamp)
            return last

        count_up(12)
        for _ in range(options.kills):
            # Members wait longer before they form a world again that was up for less than a second.
            time.sleep(1.3)
            # Rank 2's process is the newest that both 0-2 and 2-3 name.
            pid = next(iter(set(ends["0-2"][-2:]) & set(ends["2-3"][-2:])))
            at = kill(pid)
            took.append((count_up(6) - at) / 1e6)
    return summary("a worker killed, to its three worlds up again", took)


def agent_killed(launcher, options):
    took = []
    gone = True
    for _ in range(options.kills // 2 if launcher.ours else 1):
        with Job(launcher, [], [launcher.program("mwbench-launched"), "ignore"]) as job:
            workers = job.await_lines("start", WORKERS)
            ends = [os.pidfd_open(pid) for pid, _ in workers.values()]
            time.sleep(0.1)
            agent = agent_of(job.process.pid)
            at = kill(agent)
            for end in ends:
                gone = gone and bool(select.select([end], [], [], NEVER_S)[0])
                os.close(end)
            took.append((now_ns() - at) / 1e6)
    what = "the agent killed, to its workers gone"
    return summary(what, took) if gone else {what: {"never": f"they live on after {NEVER_S} s"}}


def grace(launcher, options):
    took = []
    for _ in range(3 if launcher.ours else 1):
        with Job(launcher, ["--shutdown-timeout=3"], [launcher.program("mwbench-launched"), "ignore"]) as job:
            workers = job.await_lines("start", WORKERS)
            time.sleep(0.1)
            at = kill(workers["1"][0])
            job.wait()
            took.append((now_ns() - at) / 1e6)
    return summary("a worker killed, to the end where its peer ignores SIGTERM (grace 3 s)", took)


def agent_of(pid):
    """The process that starts the workers: mwrun's is a child of the one that was started, its guard."""
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat") as stat:
                fields = stat.read().rpartition(")")[2].split()
            with open(f"/proc/{entry}/comm") as name:
                is_agent = name.read() == "mwrun-agent\n"
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == pid and is_agent:
            return int(entry)
    return pid


def tree_of(pid):
    """The agent, and its guard where it has one."""
    return list({pid, agent_of(pid)})


def cpu_s(pids):
    """Of all threads that live, to the nanosecond: ticks are too coarse for one that rests."""
    used = 0
    for pid in pids:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/schedstat") as stat:
                used += int(stat.read().split()[0])
    return used / 1e9


def held(pids):
    """Descriptors, threads and MiB of memory."""
    files = threads = 0
    mib = 0.0
    for pid in pids:
        files += len(os.listdir(f"/proc/{pid}/fd"))
        threads += len(os.listdir(f"/proc/{pid}/task"))
        # What other programs share of its libraries counts in parts.
        with open(f"/proc/{pid}/smaps_rollup") as table:
            mib += next(int(line.split()[1]) for line in table if line.startswith("Pss:")) / 1024
    return files, threads, mib


def idle(launcher, options):
    with Job(launcher, [], [launcher.program("mwbench-launched"), "obey"], workers=8) as job:
        job.await_lines("start", 8)
        time.sleep(1)
        pids = tree_of(job.process.pid)
        before, begin = cpu_s(pids), time.monotonic()
        time.sleep(options.idle)
        used = 100 * (cpu_s(pids) - before) / (time.monotonic() - begin)
        files, threads, mib = held(pids)
    return {"idle, 8 workers": {"cpu_percent": used, "pss_mib": mib, "threads": threads, "files": files}}


def restarts(launcher, options):
    """Growth is from the tenth part of the restarts to behind the last."""
    count = options.restarts if launcher.ours else options.restarts // 10
    begin = now_ns()
    first = None
    with Job(launcher, [f"--max-restarts={count}"], [launcher.program("mwbench-launched"), "fail", str(count)]) as job:
        tries = started = 0
        while started < WORKERS:
            said, _, _, stamp = job.line()
            tries += said == "try"
            started += said == "start"
            if first is None and tries > WORKERS * count // 10:
                first = held(tree_of(job.process.pid))
        took = (stamp - begin) / 1e6
        time.sleep(0.5)
        last = held(tree_of(job.process.pid))
    return {f"{count} restarts": {"took_ms": took, "each_ms": took / count, "grown_files": last[0] - first[0],
                                  "grown_threads": last[1] - first[1], "grown_mib": last[2] - first[2]}}


def summary(what, took):
    took = sorted(took)
    return {what: {"p50_ms": statistics.median(took), "p99_ms": took[min(len(took) - 1, int(0.99 * len(took)))],
                   "count": len(took)}}


def gather(name, ask, present, rounds, note):
    gathered = {}
    for one, answer in turns_of(name, ask, present, rounds, note):
        for what, row in answer.items():
            into = gathered.setdefault((one.name, what), {})
            for field, value in row.items():
                into.setdefault(field, []).append(value)
    rows = []
    for (who, what), fields in gathered.items():
        row = {"bench": "launchers", "who": who, "what": what}
        for field, values in fields.items():
            if isinstance(values[0], str):
                row[field] = values[0]
            else:
                row[field] = float(f"{statistics.median(values):.4g}")
                if len(values) > 1 and field.endswith("_ms"):
                    row[field + "_rounds"] = [float(f"{value:.4g}") for value in values]
        rows.append(row)
    return rows


QUESTIONS = {"whole": whole_run, "sigterm": exit_to_sigterm, "far": sigterm_at_another_node, "grow": another_node,
             "lost": node_lost, "replacement": replacement, "worlds": worlds_again,
             "agent": agent_killed, "grace": grace, "idle": idle, "restarts": restarts}


def said(row, field="p50_ms"):
    if row is None:
        return "-"
    return row.get("never") or number(row.get(field))


def tables(rows):
    found = {(row["who"], row["what"]): row for row in rows}
    names = list(dict.fromkeys(row["who"] for row in rows))
    lines = [f"| what, ms | {' | '.join(f'{name} (p50) | p99' for name in names)} | {TORCHRUN} / {OURS} |",
             "|---" * (2 * len(names) + 2) + "|"]
    for what in dict.fromkeys(row["what"] for row in rows if "p50_ms" in row or "never" in row):
        each = [found.get((name, what)) for name in names]
        cells = [text for row in each for text in (said(row), said(row, "p99_ms") if row and "p99_ms" in row else "-")]
        ours, theirs = ((found.get((name, what)) or {}).get("p50_ms") for name in (OURS, TORCHRUN))
        lines.append("| " + " | ".join([what, *cells, ratio(theirs, ours)]) + " |")
    yield "\n".join(lines) + "\n"
    fields = ["cpu_percent", "pss_mib", "threads", "files", "took_ms", "each_ms", "grown_files", "grown_threads",
              "grown_mib"]
    lines = ["| what | who | " + " | ".join(field.replace("_", " ") for field in fields) + " |",
             "|---" * (len(fields) + 2) + "|"]
    for row in rows:
        if any(field in row for field in fields):
            lines.append(f"| {row['what']} | {row['who']} | " + " | ".join(number(row.get(f)) for f in fields) + " |")
    yield "\n".join(lines) + "\n"


def arguments():
    parse = argparse.ArgumentParser(description=__doc__)
    parse.add_argument("mwbench", help="built with --buildtype=release; mwrun's build folder is sought beside it")
    parse.add_argument("--mwrun", metavar="PROGRAM")
    parse.add_argument("--torchrun", metavar="COMMAND", default=os.environ.get("MANYWORLDS_TORCHRUN", "torchrun"))
    parse.add_argument("--only", default=",".join(QUESTIONS), help="of: " + ", ".join(QUESTIONS))
    parse.add_argument("--rounds", type=int, default=2, help="turns of each launcher")
    parse.add_argument("--runs", type=int, default=100, help="of /bin/true in a turn; of torchrun's a twentieth")
    parse.add_argument("--kills", type=int, default=20, help="in a turn; of torchrun's a quarter")
    parse.add_argument("--idle", type=float, default=10, help="seconds")
    parse.add_argument("--restarts", type=int, default=100, help="of torchrun's a tenth")
    parse.add_argument("--json", metavar="FILE")
    parse.add_argument("--build", help="taken as by the other comparisons, and not needed")
    return parse.parse_args()


def main():
    options = arguments()
    folder = os.path.dirname(os.path.abspath(options.mwbench))
    mwrun = options.mwrun or os.path.join(folder, "../src/tools/mwrun")
    if not os.access(mwrun, os.X_OK):
        mwrun = os.path.join(folder, "mwrun")
    torchrun = shlex.split(options.torchrun)
    everyone = [Launcher(OURS, [os.path.normpath(mwrun)], "manyworlds itself: ninja src/tools/mwrun", folder,
                         [mwrun, "--version"], True),
                Launcher(TORCHRUN, torchrun, "PyPI's torch (install.sh --torch), or name it by --torchrun", folder,
                         [os.path.join(os.path.dirname(torchrun[0]), "python3"), "-W", "ignore", "-c",
                          "from importlib.metadata import version; print(version('torch'))"], False)]
    note = Notes()
    present = present_of(everyone, note)
    about, busy = machine(present), Busy()
    rows = []
    for name in options.only.split(","):
        asked = [one for one in present if one.ours] if name == "worlds" else present
        # Of what torchrun takes half a minute for, or longer, once is enough.
        rounds = 1 if name in ("grace", "restarts", "idle", "far", "grow", "lost") else options.rounds
        rows += gather(name, lambda one, ask=QUESTIONS[name]: ask(one, options), asked, rounds, note)
    about |= busy.fields()
    print(text_of(about))
    for text in tables(rows):
        print(text)
    note.conclude(about, rows, options.json)


main()
