"""Calls of a controller to its workers: a session beside a loop over cache lines, Disco, both MPIs, Gloo and Ray, in
one run, in turns. See README.md."""

import argparse
import os

from contestants import MPICH, OPEN_MPI, Driver, Mwbench
from machine import Busy, machine
from notes import Notes
from programs import HERE, LIMIT_S, rows_of, run
from python_peers import PythonPeer
from tables import OURS, table
from turns import rows_from, take_turns

ROOT = os.path.dirname(os.path.dirname(HERE))
FLOOR = "cache lines"
TITLES = {"issue_us": "Issuing a call: the controller's time (us)",
          "entered_us": "From a call to the last worker's first instruction in its function (us)",
          "call_us": "A call, until all workers have answered (us)",
          "value_us": "A call and the value of worker 0 (us)",
          "sync_us": "A call of nothing behind all others (us)",
          "call_64k_us": "The same with 64 KiB of arguments (us)"}


class Ours(Mwbench):
    def __init__(self, program, options, how):
        super().__init__(program, options)
        self.how = how
        self.name = {"spinning": OURS, "floor": FLOOR}.get(how, f"{OURS}, {how}")
        self.compared = how == "spinning"

    def session(self, workers):
        output = run([self.program, "--json", "--no-launcher", "--limit", str(LIMIT_S), "session", "--workers",
                      ",".join(map(str, workers)), "--count", str(self.options.count), "--only", self.how])
        return {row["workers"]: row for row in rows_of(output) if row.get("how") == self.how}


class Python(PythonPeer):
    """Asked by session_python.py. Disco's threads alone: its processes' start needs what the package does not load."""

    def __init__(self, name, asked, library, module, distribution, package, options):
        super().__init__(name, library, module, package, options)
        self.asked = asked
        self.distribution = distribution

    def version(self):
        show = f"from importlib.metadata import version as v; print(v('{self.distribution}'))"
        return f"{self.distribution} {run([self.interpreter(), '-c', show]).strip()}"

    def session(self, workers):
        output = run([self.interpreter(), "-W", "ignore", os.path.join(HERE, "session_python.py"), self.asked,
                      ",".join(map(str, workers)), str(self.options.count)])
        return {row["size"]: row for row in rows_of(output)}


class Mpi(Driver):
    """session_mpi.c, which is a program of its own."""

    driver = "session_mpi.c"
    header = "session_mpi.c"

    def __init__(self, name, library, options, launch):
        super().__init__(name, library, f"{library} with its headers", options, "session_mpi.c",
                         [f"mpicc.{library}"], launch, [launch[0], "--version"])

    def build(self):
        source = os.path.join(HERE, self.driver)
        if os.path.exists(self.program) and os.path.getmtime(self.program) > os.path.getmtime(source):
            return
        os.makedirs(self.options.build, exist_ok=True)
        run([*self.compiler, "-O2", "-Wall", "-Wextra", "-o", self.program + ".new", source])
        os.replace(self.program + ".new", self.program)

    def session(self, workers):
        rows = {}
        for count in workers:
            for row in rows_of(run(self.command(count + 1, self.options.count), self.environment)):
                rows[row["size"]] = row
        return rows

    def command(self, ranks, question, *arguments):
        self.build()
        return [*self.launch, "-n", str(ranks), self.program, str(question), *map(str, arguments)]


def contestants(options):
    return [*(Ours(options.mwbench, options, how) for how in ("spinning", "asleep", "alerted", "floor")),
            Python("Disco, threads", "disco", "tvm", "tvm", "apache-tvm", "install.sh --tvm", options),
            Python("torch gloo", "gloo", "torch", "torch", "torch", "python3-torch (or install.sh --torch)", options),
            Python("Ray", "ray", "ray", "ray", "ray", "install.sh --ray", options),
            Mpi("Open MPI", "openmpi", options, [*OPEN_MPI, "--mca", "mpi_yield_when_idle", "1"]),
            Mpi("MPICH", "mpich", options, MPICH)]


def arguments():
    parse = argparse.ArgumentParser(description=__doc__)
    parse.add_argument("mwbench", help="built with --buildtype=release")
    parse.add_argument("--workers", default="1,2,4,8", help="numbers of them")
    parse.add_argument("--count", type=int, default=1000, help="calls of each kind")
    parse.add_argument("--rounds", type=int, default=3)
    parse.add_argument("--json", metavar="FILE")
    parse.add_argument("--build", default=os.environ.get("PEERS_BUILD", os.path.join(ROOT, "build", "peers")),
                       help="for the drivers")
    return parse.parse_args()


def main():
    options = arguments()
    note = Notes()
    all_of_them = contestants(options)
    workers = [int(each) for each in options.workers.split(",")]
    present = [one for one in all_of_them if not one.missing()]
    about, busy = machine(present), Busy()
    gathered = take_turns("session", lambda one: one.session(workers), all_of_them, options.rounds, note)
    rows = rows_from("session", gathered, all_of_them)
    for what, title in TITLES.items():
        print(table(title, rows, what, min).replace("| bytes |", "| workers |").replace(" B |", " |"))
    note.conclude(about | busy.fields(), rows, options.json)


main()
