"""The tables of figures in README.md and in benchmarks/README.md, out of the newest folder of results/.

figures.py            fails if a page shows other figures than that folder has
figures.py --write    writes them into the pages

A table stands between <!-- figures: NAME --> and <!-- end of figures -->.
"""

import difflib
import pathlib
import re
import sys

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here / "peers"))

from tables import OURS, human, number, rows_in  # noqa: E402

PAGES = ["README.md", "examples/starting.md", "benchmarks/README.md"]
MPIS = ["Open MPI", "MPICH"]
KIB, MIB = 1 << 10, 1 << 20


def newest_with(name):
    """A folder may hold part of what is asked: `reproduce.sh --only`."""
    return max(path.parent for path in (here / "results").glob(f"*/{name}.json"))


newest = newest_with("p2p")


def one(name, folder=newest, **fields):
    """The first row of that file with these values."""
    for row in rows_in(folder, name):
        if all(row.get(field) == value for field, value in fields.items()):
            return row
    raise SystemExit(f"{folder.name}/{name}.json has no row with {fields}")


def ms(value):
    return f"{number(value / 1000)} s" if value >= 1000 else f"{number(value)} ms"


def table(heads, rows):
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


# --- README.md: six rows


def noticed(fault, who):
    """From a fault of a member to what the one that waits for it is told; of one row of fail.json."""
    row = one("fail", fault=fault, who=who)
    if not row["noticed"]:
        return row["told"]
    told = {"success, though nothing came": "success, without data", "nothing, it is ended too": "ended too"}
    how = told.get(row["told"])
    return ms(row["ms"]) + (f" ({how})" if how else "")


def side_by_side(said):
    """What each says; once, if they say the same."""
    return next(iter(said.values())) if len(set(said.values())) == 1 else ", ".join(map(" ".join, said.items()))


def peers_notice(fault):
    def calls(who):
        return {f"`{call}`": noticed(fault, f"{who}, {call}") for call in ("recv", "all_reduce")}

    mpis = {who: noticed(fault, who) for who in MPIS}
    return [side_by_side(said) for said in (calls("MultiWorld"), calls("torch gloo"), mpis)]


def one_way(size, near=False):
    """Returns what each takes. With `near` that is where CPUs are near, but of MultiWorld and torch, which tell no difference."""
    times = {row["who"]: row["p50_us"] for row in rows_in(newest, "p2p") if row.get("size") == size}
    if near:
        apart = {row["who"]: row["p50_us"] for row in rows_in(newest, "distances")
                 if row.get("size") == size and row["distance"] == "near"}
        times |= {who: apart.get(who) for who in (OURS, *MPIS)}
    shown = [number(times[who]) for who in (OURS, "MultiWorld", "torch gloo")]
    return [*shown, ", ".join(number(times[who]) for who in MPIS)]


def summary():
    kill = one("recovery", bench="fail", fault="kill", members=2)
    stop = one("recovery", bench="fail", fault="stop")
    give_up = [one("life", bench="cancel", side=side) for side in ("receive", "send")]
    received, sent = (ms(row["cancel_ms"]) for row in give_up)
    return table(
        ["", "Manyworlds", "MultiWorld 0.2.3", "torch with Gloo", "Open MPI, MPICH"],
        [
            ["`kill -9` of a peer, to the error", f"{ms(kill['detect_ms'])}, p99 {ms(kill['detect_p99_ms'])}",
             *peers_notice("kill")],
            ["from the error to the same world again", f"{ms(kill['reform_ms'])}", "needs a new name and port",
             "needs a new process group", "start the job again"],
            ["`kill -STOP` of a peer, to the error",
             f"suspect after {ms(stop['suspect_ms'])}, {ms(stop['broken_ms'])}", *peers_notice("stop")],
            ["a 64 MiB transfer given up, to a free buffer", f"{received} receiving, {sent} sending",
             "no such call", "no such call", "no such call"],
            ["8 B one way, CPUs near, us", *one_way(8, near=True)],
            ["64 MiB one way, us", *one_way(64 * MIB)],
        ],
    )


def beside_torchrun():
    folder = newest_with("launchers")

    def took(what, who):
        row = one("launchers", folder, bench="launchers", what=what, who=who)
        return row["never"] if "never" in row else ms(row["p50_ms"])

    kill, agent = "a worker killed, to ", "the agent killed, to its workers gone"
    third = "a third node comes to two, to all workers running"
    alone = kill + "its replacement's first instruction"
    version = one("launchers", folder, bench="machine")["versions"]["torchrun"]
    return table(["", "mwrun", f"torchrun {version}"], [
        ["a worker killed, to its replacement", f"{took(alone, OURS)}, it alone", f"{took(alone, 'torchrun')}, all of them"],
        ["to its three worlds up again", took(kill + "its three worlds up again", OURS), "no such thing"],
        ["the launcher killed, to its workers gone", took(agent, OURS), took(agent, "torchrun")],
        [third, took(third, OURS), took(third, "torchrun")],
    ])


# --- benchmarks/README.md: all sizes


def two_processes():
    rows = [row for row in rows_in(newest, "p2p") if row.get("who")]
    time = {(row["who"], row["size"]): row["p50_us"] for row in rows}
    rate = {(row["who"], row["size"]): row["gb_s"] for row in rows}
    raw = {row["size"]: row for row in rows if "raw_us" in row}
    peers = ["UCX", *MPIS]
    return table(
        ["bytes", "one way, us: ours", *peers, "torch gloo", "raw", "four under way, GB/s: ours", *peers, "raw"],
        [[human(size), *(number(time[who, size]) for who in [OURS, *peers, "torch gloo"]),
          number(raw[size]["raw_us"]), *(number(rate[who, size]) for who in [OURS, *peers]),
          number(raw[size]["raw_gb_s"])] for size in sorted(raw)],
    )


def small_messages():
    rows = [row for row in rows_in(newest, "distances") if row.get("who")]
    value = {(row["distance"], row["size"], row["who"]): row for row in rows}
    who = [OURS, "UCX", *MPIS]
    heads = ["CPUs (turns)", "bytes", "one way, us: ours", *who[1:], "raw", "four under way, GB/s: ours", *who[1:], "raw"]
    lines = []
    for distance, size in dict.fromkeys((row["distance"], row["size"]) for row in rows if row["who"] == OURS):
        of = {each: value.get((distance, size, each), {}) for each in who}
        turns = min(row["turns"] for row in of.values() if row)
        lines.append([f"{distance} ({turns})", human(size), *(number(of[each].get("p50_us")) for each in who),
                      number(of[OURS]["raw_us"]), *(number(of[each].get("gb_s")) for each in who),
                      number(of[OURS]["raw_gb_s"])])
    return table(heads, lines)


def collectives(members, what):
    kinds = ["all_reduce", "broadcast", "reduce_scatter"]
    rows = [row for row in rows_in(newest, f"collectives-{members}") if row.get("who")]
    value = {(row["kind"], row["who"], row["size"]): row[what] for row in rows}
    beside = {"p50_us": "raw_p50_us", "time_us": "raw_us"}[what]
    raw = {(row["kind"], row["size"]): row[beside] for row in rows if beside in row}
    sizes = [8, 8 * KIB, 64 * KIB, MIB, 16 * MIB]
    heads = ["bytes"] + [head for kind in kinds for head in (f"{kind}: ours", "raw", "MPI", "Gloo")]
    return table(heads, [
        [human(size)] + [number(figure) for kind in kinds for figure in (
            value[kind, OURS, size], raw.get((kind, size)), min(value[kind, who, size] for who in MPIS),
            value[kind, "Gloo", size])]
        for size in sizes])


def measured_on(folder, name):
    about = one(name, folder, bench="machine")
    return (f"{about['processor']}, {about['cpus']} CPUs, kernel {about['kernel']}, {about['date'][:10]}, by "
            f"`reproduce.sh`: [{folder.name}](results/{folder.name}/README.md).")


def stores():
    folder = newest_with("store")
    who = [OURS, "manyworlds, near", "PyTorch", "PyTorch's client, our server", "our client of etcd", "etcd's Go client"]
    rows = [row for row in rows_in(folder, "store") if row["bench"] == "store"]
    time = {(row["who"], row["operation"]): row.get("p50_us", row.get("took_ms")) for row in rows}
    versions = one("store", folder, bench="machine")["versions"]
    said = "; ".join(f"{each} {versions[each]}" for each in ("PyTorch", "etcd"))
    heads = ["us, p50", "ours", "ours, near", "PyTorch", "PyTorch's client, our server", "etcd: ours", "etcd: its Go client"]
    operations = ["get", "set", "add", "check", "compare_set"]
    lines = table(heads, [[operation, *(number(time.get((each, operation))) for each in who)]
                          for operation in operations])
    met = [number(time.get((each, "connect and barrier"))) for each in who]
    lines.append(f"| 1,000 clients to a barrier, ms | {' | '.join(met)} |")
    return [*lines, "", f"{said}; {measured_on(folder, 'store')}"]


def rounds():
    folder = newest_with("launch")
    rows = [row for row in rows_in(folder, "launch") if row["bench"] == "rendezvous"]
    backends = list(dict.fromkeys(row["backend"] for row in rows))
    time = {(row["what"], row["backend"]): f"{number(row['p50_ms'])} ({number(row['max_ms'])})" for row in rows}
    whats = list(dict.fromkeys(row["what"] for row in rows))
    return table(["ms, p50 (longest)", *backends],
                 [[what, *(time.get((what, backend), "-") for backend in backends)] for what in whats])


def starts():
    folder = newest_with("launch")
    rows = [row for row in rows_in(folder, "launch") if row["bench"] == "process"]
    others = list(dict.fromkeys(row["beside"] for row in rows))
    lines = []
    for what, touched in dict.fromkeys((row["what"], row["touched_mib"]) for row in rows):
        chosen = {row["beside"]: row for row in rows if (row["what"], row["touched_mib"]) == (what, touched)}
        lines.append([f"{what}, {touched} MiB touched", number(chosen[others[0]]["us"]),
                      *(number(chosen[other]["beside_us"]) for other in others)])
    return table(["us, p50", "ours", *others], lines)


def launchers():
    folder = newest_with("launchers")
    rows = [row for row in rows_in(folder, "launchers") if row["bench"] == "launchers"]
    found = {(row["who"], row["what"].split(" restarts")[-1] or "a restart"): row for row in rows}

    def cells(who, what):
        row = found.get((who, what), {})
        if "never" in row:
            return row["never"]
        if "each_ms" in row:
            return number(row["each_ms"])
        return f"{number(row['p50_ms'])} ({number(row['p99_ms'])})" if "p50_ms" in row else "-"

    whats = [what for what in dict.fromkeys(what for _, what in found) if not what.startswith("idle")]
    lines = table(["ms, p50 (p99)", "mwrun", "torchrun"],
                  [[what, cells(OURS, what), cells("torchrun", what)] for what in whats])
    idle = "idle, 8 workers"
    for what, field in (("idle with 8 workers, % of a CPU", "cpu_percent"), ("the same, MiB (Pss)", "pss_mib")):
        lines.append(f"| {what} | " + " | ".join(number(found.get((who, idle), {}).get(field))
                                                  for who in (OURS, "torchrun")) + " |")
    version = one("launchers", folder, bench="machine")["versions"].get("torchrun", "unknown")
    return [*lines, "", f"torchrun {version}; {measured_on(folder, 'launchers')}"]


def machine():
    about = one("p2p", bench="machine")
    versions = {who.split(",")[0]: version for name in ("p2p", "fail", "collectives-2")
                for who, version in one(name, bench="machine")["versions"].items()}
    who = ["manyworlds", "UCX", *MPIS, "Gloo", "torch gloo", "MultiWorld"]
    said = "; ".join(f"{each} {versions[each].removeprefix(each + ' ')}" for each in who)
    return [f"Machine: {about['processor']}, {about['cpus']} CPUs, kernel {about['kernel']}, {about['date'][:10]}. "
            f"Versions: {said}.", "", f"All figures of that run: [{newest.name}](results/{newest.name}/README.md)."]


TABLES = {
    "summary": summary,
    "beside torchrun": beside_torchrun,
    "machine": machine,
    "small messages": small_messages,
    "two processes": two_processes,
    "collectives of two": lambda: collectives(2, "p50_us"),
    "stores": stores,
    "rounds": rounds,
    "starts": starts,
    "launchers": launchers,
    "collectives of four": lambda: collectives(4, "time_us"),
}
MARKED = re.compile(r"(<!-- figures: ([\w ]+) -->\n)(.*?)(<!-- end of figures -->)", re.S)


def main():
    found, differs = [], False
    for page in PAGES:
        path = here.parent / page
        text = path.read_text()
        found += [name for _, name, _, _ in MARKED.findall(text)]
        right = MARKED.sub(lambda at: at[1] + "\n".join(TABLES[at[2]]()) + "\n" + at[4], text)
        if right == text:
            continue
        differs = True
        if "--write" in sys.argv:
            path.write_text(right)
        else:
            print("\n".join(difflib.unified_diff(text.splitlines(), right.splitlines(), page, "the results", lineterm="", n=0)))
    if sorted(found) != sorted(TABLES):
        print(f"the pages show {sorted(found)}, and there are {sorted(TABLES)}")
        return 1
    if differs and "--write" not in sys.argv:
        print("figures.py --write corrects them")
        return 1
    return 0


sys.exit(main())
