"""Our messages and collectives beside those of UCX, Open MPI, MPICH and Gloo, in one run.

The contestants take turns, A B C D A B C D ..., and medians over the rounds are compared: a machine
that drifts favours nobody. See README.md."""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

import contestants
from contestants import Failed

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OURS = contestants.Mwbench.name
KINDS = "broadcast,reduce,all_reduce,gather,all_gather,scatter,reduce_scatter,all_to_all,barrier"


def take_turns(question, ask, everybody, rounds, note):
    """{name: {size: {what: [a value a round]}}} of those who are here and answer."""
    present = []
    for one in everybody:
        if one.missing():
            note(f"{one.name} is not here: install {one.package}")
        else:
            present.append(one)
    gathered = {one.name: {} for one in present}
    for round_number in range(rounds):
        for one in list(present):
            print(f"{question} {round_number + 1}/{rounds}: {one.name}", file=sys.stderr)
            try:
                answer = ask(one)
            except Failed as failure:
                note(f"{one.name} is left out: {failure}")
                present.remove(one)
                del gathered[one.name]
                continue
            for size, row in answer.items():
                into = gathered[one.name].setdefault(size, {})
                for what, value in row.items():
                    if isinstance(value, (int, float)):
                        into.setdefault(what, []).append(value)
    return gathered


def rows_from(question, gathered, everybody):
    compared = {one.name: one.compared for one in everybody}
    rows = []
    for name, sizes in gathered.items():
        for size, values in sizes.items():
            row = {"bench": question, "who": name, "size": size, "compared": compared[name]}
            for what, of_rounds in values.items():
                if what.endswith(("_us", "gb_s")):
                    row[what] = float(f"{statistics.median(of_rounds):.4g}")
                    row[what + "_rounds"] = of_rounds
            rows.append(row)
    return rows


def table(title, rows, what, better, raw=None):
    """One line a size: the raw limit, ours, the others, and ours against raw and the best other."""
    rows = [row for row in rows if what in row]
    names = list(dict.fromkeys(row["who"] for row in rows))
    compared = {row["who"] for row in rows if row["compared"]} - {OURS}
    value = {(row["who"], row["size"]): row[what] for row in rows}
    limit = {row["size"]: row[raw] for row in rows if raw in row}
    heads = ["bytes", *(["raw"] if limit else []), *names,
             *(["ours / raw"] if limit else []), "ours / best other"]
    lines = [f"**{title}**", "", "| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for size in sorted({row["size"] for row in rows}):
        ours = value.get((OURS, size))
        others = [value[n, size] for n in compared if (n, size) in value]
        cells = [human(size)]
        cells += [number(limit.get(size))] if limit else []
        cells += [number(value.get((n, size))) for n in names]
        cells += [ratio(ours, limit.get(size))] if limit else []
        cells += [ratio(ours, better(others) if others else None)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def human(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} B"


def number(value):
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def ratio(ours, other):
    return f"{ours / other:.2f}" if ours and other else "-"


class Busy:
    """How much of the machine others used meanwhile: without it no figure here means much."""

    def __init__(self):
        self.begin = self.now()

    @staticmethod
    def now():
        with open("/proc/stat") as table:
            ticks = [int(t) for t in table.readline().split()[1:9]]
        tick = os.sysconf("SC_CLK_TCK")
        idle, stolen = (ticks[3] + ticks[4]) / tick, ticks[7] / tick
        own = sum(u.ru_utime + u.ru_stime for u in (resource.getrusage(resource.RUSAGE_SELF),
                                                    resource.getrusage(resource.RUSAGE_CHILDREN)))
        return sum(ticks) / tick, idle, stolen, own

    def fields(self):
        total, idle, stolen, own = (b - a for a, b in zip(self.begin, self.now()))
        others = max(0.0, total - idle - stolen - own)
        return {"others_percent": round(100 * others / total, 1),
                "stolen_percent": round(100 * stolen / total, 1)}


def machine():
    with open("/proc/cpuinfo") as table:
        names = [line.split(": ")[1].strip() for line in table if line.startswith("model name")]
    return {"bench": "machine", "processor": names[0] if names else "unknown", "cpus": len(names),
            "kernel": os.uname().release, "load": os.getloadavg()[0],
            "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}


def sizes(text):
    units = {"K": 1 << 10, "M": 1 << 20}
    return [int(s.rstrip("KM")) * units.get(s[-1], 1) for s in text.split(",")]


def arguments():
    parse = argparse.ArgumentParser(description=__doc__)
    parse.add_argument("mwbench", help="built with --buildtype=release")
    parse.add_argument("--question", choices=["p2p", "pairs", "collectives", "all"],
                       default="all")
    parse.add_argument("--sizes", type=sizes, default="8,1K,8K,64K,1M,16M,64M", help="of p2p")
    parse.add_argument("--pair-sizes", type=sizes, default="8,64K")
    parse.add_argument("--collective-sizes", type=sizes,
                       default="8,1K,8K,64K,256K,1M,4M,16M,64M", help="in all")
    parse.add_argument("--kinds", type=lambda text: text.split(","), default=KINDS,
                       help="of collectives")
    parse.add_argument("--members", type=sizes, default="2,4")
    parse.add_argument("--collective-seconds", type=float, default=0.2, help="a size")
    parse.add_argument("--rounds", type=int, default=7, help="turns of everybody")
    parse.add_argument("--inner-rounds", type=int, default=2, help="within a turn")
    parse.add_argument("--pings", type=int, default=10000, help="in an inner round, at most")
    parse.add_argument("--seconds", type=float, default=1, help="a size of two pairs at once")
    parse.add_argument("--idle-worlds", type=int, default=63, help="beside ours")
    parse.add_argument("--json", metavar="FILE", help="also every round's figures, one object a "
                       "line")
    parse.add_argument("--plot", metavar="FILE.svg", help="curves of everybody; needs --json")
    parse.add_argument("--build", default=os.path.join(ROOT, "build", "peers"), help="for the drivers")
    options = parse.parse_args()
    if options.plot and not options.json:
        parse.error("--plot draws what --json FILE keeps: say both")
    return options


def ask_collectives(options, note, rows):
    everybody = contestants.of_collectives(options.mwbench, options)
    for members in options.members:
        for kind in options.kinds:
            asked = options.collective_sizes if kind != "barrier" else [0]
            gathered = take_turns(f"{kind} of {members}",
                                  lambda one: one.collective(kind, members, asked), everybody,
                                  options.rounds, note)
            new = rows_from("collectives", gathered, everybody)
            rows.extend(row | {"kind": kind, "members": members} for row in new)


def print_collectives(rows):
    """The mean counts where members are more than CPUs: who waits for one is seldom, and long."""
    for kind, members in dict.fromkeys((row["kind"], row["members"]) for row in rows):
        chosen = [row for row in rows if (row["kind"], row["members"]) == (kind, members)]
        what, name = ("time_us", "mean") if members > os.cpu_count() else ("p50_us", "p50")
        print(table(f"{kind}, {members} members, us ({name})", chosen, what, min))


def main():
    options = arguments()
    about, busy, notes, rows = machine(), Busy(), [], []

    def note(text):
        if text not in notes:
            notes.append(text)
            print(text, file=sys.stderr)

    def ask_all(question, everybody, sizes):
        gathered = take_turns(question, lambda one: getattr(one, question)(sizes), everybody,
                              options.rounds, note)
        rows.extend(rows_from(question, gathered, everybody))

    if options.question in ("p2p", "all"):
        ask_all("p2p", contestants.of_p2p(options.mwbench, options), options.sizes)
    if options.question in ("pairs", "all"):
        ask_all("pairs", contestants.of_pairs(options.mwbench, options), options.pair_sizes)
    if options.question in ("collectives", "all"):
        ask_collectives(options, note, rows)
    about |= busy.fields()

    print(", ".join(f"{name} {value}" for name, value in about.items() if name != "bench") + "\n")
    p2p = [row for row in rows if row["bench"] == "p2p"]
    pairs = [row for row in rows if row["bench"] == "pairs"]
    if p2p:
        print(table("Half a round trip, us (p50)", p2p, "p50_us", min, "raw_us"))
        print(table("One way, 4 messages under way, GB/s", p2p, "gb_s", max, "raw_gb_s"))
    for what, title in (("mean_us", "mean"), ("p50_us", "p50"), ("p99_us", "p99")):
        if pairs:
            print(table(f"Two pairs at once, not pinned, half a round trip, us ({title}, of the "
                        "slower pair)", pairs, what, min))
    print_collectives([row for row in rows if row["bench"] == "collectives"])
    for text in notes:
        print(f"- {text}")
    if options.json:
        with open(options.json, "w") as out:
            for row in [about | {"notes": notes}, *rows]:
                out.write(json.dumps(row) + "\n")
    if options.plot:
        subprocess.run([options.mwbench, "draw", options.json, options.plot], check=True)


main()
