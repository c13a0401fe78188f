"""The first page of a folder that reproduce.sh filled: summary.py FOLDER"""

import glob
import os
import sys

import budgets
import distance
from tables import rows_in

TITLES = {"p2p": "Two processes", "distances": "Two processes, by how far their CPUs are",
          "pairs": "Two pairs at once", "collectives-2": "Collectives of two",
          "collectives-4": "Collectives of four", "barriers": "Barriers of many members on few CPUs",
          "worlds": "Many worlds against one",
          "session": "Calls of a session", "sessions": "A session with workers that are killed, or idle",
          "fail": "A member is killed or stopped, beside the peers",
          "recovery": "A member is killed, stopped or cut off: its worlds, and those beside",
          "memory-kinds": "Lists of pieces, and shared pools", "tcp": "Over tcp, beside the peers",
          "tcp-ways": "Each way of io_uring over plain tcp, and small messages beside large ones", "refused": "Where memory of peers may not be read",
          "life": "Forming, idling, giving up, awaiting, memory", "growth": "Growth: worlds, then members",
          "store": "Stores, beside PyTorch's and etcd's own client", "launch": "Starting programs, and rounds of nodes",
          "launchers": "A job's workers: mwrun beside torchrun"}


def between_cpus(rows):
    """The host decides where the CPUs are, and may move them: two runs are alike only if this is."""
    line = min((row["raw_us"] for row in rows if row.get("raw_us") and row["size"] <= 64), default=None)
    if line is None:
        return "unknown"
    return f"{1e3 * line:.0f} ns for a cache line: {distance.name_of(line)}"


def commits(folder):
    """Returns the commit of each file that tells one; once, if they are the same."""
    of = {}
    for path in sorted(glob.glob(os.path.join(folder, "*.json"))):
        name = os.path.basename(path)[:-len(".json")]
        for row in rows_in(folder, name):
            if "commit" in row:
                of.setdefault(row["commit"], []).append(name)
    return "; ".join(of) if len(of) < 2 else "; ".join(f"{commit} ({', '.join(names)})" for commit, names in of.items())


def main():
    folder = sys.argv[1]
    p2p = rows_in(folder, "p2p")
    asked = p2p or next(filter(None, (rows_in(folder, name) for name in ("store", "launchers", "tcp-ways"))), [])
    about = next((row for row in asked if row["bench"] == "machine"), {})
    print(f"# {about.get('processor', 'Unknown')}, {about.get('date', '')[:10]}\n")
    print("By `benchmarks/reproduce.sh`; each file has its own load, versions and notes.\n")
    for name in ("cpus", "kernel"):
        print(f"- {name}: {about.get(name, 'unknown')}")
    print(f"- commit: {commits(folder)}")
    if p2p:
        print(f"- between the two CPUs: {between_cpus(p2p)}")
    versions, notes = {}, {}
    for path in sorted(glob.glob(os.path.join(folder, "*.json"))):
        for row in rows_in(folder, os.path.basename(path)[:-len(".json")]):
            for who, version in row.get("versions", {}).items():
                versions[who.split(",")[0]] = version
            notes |= dict.fromkeys(row.get("notes", []))
    for who, version in versions.items():
        print(f"- {who}: {version}")
    print("\n## Budgets\n\nOf several sizes or kinds the worst, in brackets; \"A by B\" is A divided by B.\n")
    budgets.tell(folder)
    for name, title in TITLES.items():
        path = os.path.join(folder, name + ".md")
        if not os.path.exists(path):
            continue
        print(f"\n## {title}\n\n[{name}.json]({name}.json)", end="")
        if os.path.exists(path[:-len(".md")] + ".svg"):
            print(f"\n\n![{title}]({name}.svg)", end="")
        with open(path) as table:
            print("\n\n" + table.read().strip())
    if notes:
        print("\n## Who is missing, or had no answer\n")
        print("\n".join(f"- {note}" for note in notes))


main()
