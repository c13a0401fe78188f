"""From a fault of one member to its error at another: ours beside the peers', in turns. See README.md.

Two members; one waits for the other, which is killed (SIGKILL) or stopped (SIGSTOP)."""

import argparse
import json
import os
import select
import signal
import statistics
import subprocess
import tempfile
import time

import line_up
from contestants import Mwbench
from machine import Busy, machine, text_of
from notes import Notes
from programs import LIMIT_S, Failed, end, rows_of, run
from tables import number
from turns import present_of, turns_of

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


class Ours:
    """mwbench strikes by itself."""

    def __init__(self, program, options):
        self.mwbench = Mwbench(program, options)
        self.name, self.package = self.mwbench.name, self.mwbench.package
        self.missing, self.version = self.mwbench.missing, self.mwbench.version

    def fail(self, fault, limit):
        output = run([self.mwbench.program, "--json", "--no-launcher", "--limit", str(LIMIT_S),
                      "fail", "--fault", fault, "--repeat", "1", "--alone"])
        row = next(row for row in rows_of(output) if row["bench"] == "fail")
        if fault == "kill":
            return {"ms": row["detect_ms"], "told": "world_error: peer_died"}
        return {"ms": row["broken_ms"], "suspect_ms": row["suspect_ms"],
                "told": "world_error: silent_peer"}


class Struck:
    """Another, started as it is asked everything else; we strike who it says is the victim."""

    def __init__(self, peer, command, environment=None, suffix=""):
        self.name, self.package = peer.name + suffix, peer.package
        self.missing, self.version = peer.missing, peer.version
        self.command = command
        self.environment = environment or {}

    def fail(self, fault, limit):
        # A file: nothing reads it meanwhile, and a pipe would be full some time.
        with tempfile.TemporaryFile() as errors:
            job = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=errors, env=os.environ | self.environment,
                                   start_new_session=True)
            facts = {}
            try:
                return self.strike(job, fault, limit, facts)
            except (Early, ProcessLookupError):
                when = "ends before it is struck" if "victim" in facts else "does not begin"
                raise Failed(f"{self.name} {when}: {last_words(errors)}") from None
            finally:
                if "victim" in facts:
                    kill_if_there(facts["victim"])
                end(job)

    @staticmethod
    def strike(job, fault, limit, facts):
        told = Lines(job.stdout)
        told.until(lambda row: facts.update(row) or {"victim", "survivor"} <= facts.keys(), LIMIT_S)
        if not {"victim", "survivor"} <= facts.keys():
            raise Early
        told.watch(facts["survivor"])
        # What it does after a barrier, until it waits for good.
        if told.until(is_notice, 1) or told.ended_at is not None:
            raise Early
        struck = time.monotonic()
        os.kill(facts["victim"], SIGNALS[fault])
        noticed = told.until(is_notice, limit)
        if noticed is not None:
            return {"ms": 1e3 * (noticed["noticed"] - struck), "told": noticed["told"]}
        if told.ended_at is not None:
            return {"ms": 1e3 * (told.ended_at - struck), "told": "nothing, it is ended too"}
        return {"told": f"nothing in {limit:g} s"}


class Early(Exception):
    """A job was over, or said nothing, before one of its members could be struck."""


def is_notice(row):
    return "noticed" in row


def last_words(errors):
    errors.seek(0)
    return errors.read().decode(errors="replace").strip()[-300:]


def kill_if_there(pid):
    """A stopped process hears of nothing else."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


class Lines:
    """Objects that a job prints, until its output or the process that is watched ends."""

    def __init__(self, pipe):
        self.pipe = pipe
        self.text = b""
        self.watched = None
        self.ended_at = None

    def watch(self, pid):
        self.watched = os.pidfd_open(pid)

    def __del__(self):
        if self.watched is not None:
            os.close(self.watched)

    def until(self, wanted, seconds):
        deadline = time.monotonic() + seconds
        sources = [self.pipe, *([] if self.watched is None else [self.watched])]
        while self.ended_at is None:
            while b"\n" in self.text:
                line, self.text = self.text.split(b"\n", 1)
                if line.startswith(b"{") and wanted(row := json.loads(line)):
                    return row
            ready = select.select(sources, [], [], max(0, deadline - time.monotonic()))[0]
            if not ready:
                return None
            # First what it said before it ended.
            more = os.read(self.pipe.fileno(), 65536) if self.pipe in ready else b""
            self.text += more
            if not more:
                self.ended_at = time.monotonic()
        return None


def contestants(options):
    """Each as its users have it: no recovery mode is switched on, and no timeout is set."""
    mpi = [line_up.open_mpi(options), line_up.mpich(options)]
    ucx = line_up.ucx(options, "UCX", line_up.UCX_SHM)
    python = [line_up.torch_gloo(options), line_up.multiworld(options)]
    return [Ours(options.mwbench, options),
            *[Struck(one, lambda one=one, op=op: one.command("wait", op), suffix=f", {op}")
              for one in python for op in ("recv", "all_reduce")],
            *[Struck(one, lambda one=one: one.command(2, "wait"), one.environment)
              for one in (*mpi, ucx)]]


def row_of(fault, who, answers):
    """The median of those that noticed, and what most were told."""
    row = {"bench": "fail", "fault": fault, "who": who, "repeats": len(answers),
           "told": statistics.mode(answer["told"] for answer in answers),
           "noticed": sum("ms" in answer for answer in answers)}
    for what in ("ms", "suspect_ms"):
        values = [answer[what] for answer in answers if what in answer]
        if values:
            row[what] = float(f"{statistics.median(values):.4g}")
            row[what + "_rounds"] = [float(f"{value:.4g}") for value in values]
    return row


def table(fault, rows):
    lines = [f"**SIG{fault.upper()} of the member that is waited for**", "",
             "| who | ms (median) | worst | noticed | what the waiter is told |", "|---" * 5 + "|"]
    for row in (row for row in rows if row["fault"] == fault):
        worst = max(row["ms_rounds"]) if "ms" in row else None
        suspect = f" (suspect after {number(row['suspect_ms'])} ms)" if "suspect_ms" in row else ""
        told = row["told"].split(". ")[0].replace("|", "/").replace("\n", " ")
        lines.append(f"| {row['who']} | {number(row.get('ms'))} | {number(worst)} | "
                     f"{row['noticed']} of {row['repeats']} | {told}{suspect} |")
    return "\n".join(lines) + "\n"


def arguments():
    parse = argparse.ArgumentParser(description=__doc__)
    parse.add_argument("mwbench", help="built with --buildtype=release")
    parse.add_argument("--kills", type=int, default=10, help="rounds")
    parse.add_argument("--stops", type=int, default=1, help="rounds")
    parse.add_argument("--stop-limit", type=float, default=30, help="seconds to wait for a notice")
    parse.add_argument("--json", metavar="FILE")
    parse.add_argument("--build", default=os.environ.get("PEERS_BUILD", os.path.join(
        ROOT, "build", "peers")), help="for the drivers")
    return parse.parse_args()


def main():
    options = arguments()
    note, rows = Notes(), []
    present = present_of(contestants(options), note)
    about, busy = machine(present), Busy()
    for fault, rounds, limit in (("kill", options.kills, options.stop_limit),
                                 ("stop", options.stops, options.stop_limit)):
        answers = {}
        for one, answer in turns_of(fault, lambda one: one.fail(fault, limit), present, rounds, note):
            answers.setdefault(one.name, []).append(answer)
        rows += [row_of(fault, who, given) for who, given in answers.items()]
    about |= busy.fields()
    print(text_of(about))
    for fault in SIGNALS:
        print(table(fault, rows))
    note.conclude(about, rows, options.json)


main()
