"""Our messages and collectives beside those of the peers, in one run and in turns. See README.md."""

import argparse
import os
import subprocess
import sys

import distance
import line_up
import networks
import over_tcp
from machine import Busy, machine, text_of
from notes import Notes
from programs import Failed
from tables import table
from turns import rows_from, take_turns

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
KINDS = "broadcast,reduce,all_reduce,gather,all_gather,scatter,reduce_scatter,all_to_all,barrier"


def sizes(text):
    units = {"K": 1 << 10, "M": 1 << 20}
    return [int(s.rstrip("KM")) * units.get(s[-1], 1) for s in text.split(",")]


def arguments():
    parse = argparse.ArgumentParser(description=__doc__)
    parse.add_argument("mwbench", help="built with --buildtype=release")
    parse.add_argument("--question", choices=["p2p", "distances", "pairs", "collectives", "tcp", "all"],
                       default="all", help="all but distances and tcp, which want to be asked by themselves")
    parse.add_argument("--sizes", type=sizes, default="8,1K,8K,64K,1M,16M,64M", help="of p2p")
    parse.add_argument("--pair-sizes", type=sizes, default="8,64K")
    parse.add_argument("--collective-sizes", type=sizes,
                       default="8,1K,8K,64K,256K,1M,4M,16M,64M", help="in all")
    parse.add_argument("--kinds", type=lambda text: text.split(","), default=KINDS,
                       help="of collectives")
    parse.add_argument("--networks", type=lambda text: text.split(","), default=list(networks.KINDS),
                       help="of tcp")
    parse.add_argument("--largest", type=lambda text: sizes(text)[0], default="64M", help="size of tcp")
    parse.add_argument("--members", type=sizes, default="2,4")
    parse.add_argument("--collective-seconds", type=float, default=0.2, help="a size")
    parse.add_argument("--rounds", type=int, default=7, help="turns of each contestant")
    parse.add_argument("--inner-rounds", type=int, default=2, help="within a turn")
    parse.add_argument("--pings", type=int, default=10000, help="in an inner round, at most")
    parse.add_argument("--seconds", type=float, default=1, help="a size of two pairs at once")
    parse.add_argument("--idle-worlds", type=int, default=63, help="beside ours")
    parse.add_argument("--json", metavar="FILE", help="also every round's figures, one object a "
                       "line")
    parse.add_argument("--build", default=os.environ.get("PEERS_BUILD", os.path.join(
        ROOT, "build", "peers")), help="for the drivers")
    parse.add_argument("--plot", metavar="FILE.svg", help="curves of all contestants; needs --json")
    options = parse.parse_args()
    if options.plot and not options.json:
        parse.error("--plot draws what --json FILE keeps: say both")
    return options


def ask_collectives(contestants, options, note, rows):
    for members in options.members:
        for kind in options.kinds:
            asked = options.collective_sizes if kind != "barrier" else [0]
            gathered = take_turns(f"{kind} of {members}",
                                  lambda one: one.collective(kind, members, asked), contestants,
                                  options.rounds, note)
            new = rows_from("collectives", gathered, contestants)
            rows.extend(row | {"kind": kind, "members": members} for row in new)


def ask_tcp(options, note):
    """Each network for itself. Returns who was asked, and the rows."""
    asked, rows = [], []
    for kind in options.networks:
        try:
            network = networks.make(kind, options.build)
        except Failed as refusal:
            note(str(refusal))
            continue
        try:
            contestants = over_tcp.of_tcp(options.mwbench, options, network)
            groups = networks.asked_of(kind, options.largest)
            gathered = take_turns(f"tcp by {kind}", lambda one: one.tcp(groups), contestants, options.rounds, note)
        finally:
            network.remove()
        rows += [row | {"network": kind} for row in rows_from("tcp", gathered, contestants)]
        asked = contestants
    return asked, rows


def ask_distances(options, note):
    """Asks p2p in turns, and keeps those that met CPUs near from those that met them far. Returns who was asked, and the rows."""
    asked = line_up.of_distances(options.mwbench, options)
    try:
        line = distance.Line(options.build)
    except Failed as refusal:
        note(str(refusal))
        return asked, []
    gathered = take_turns("distances", line.beside(lambda one: one.p2p(options.sizes)), asked, options.rounds, note)
    return asked, distance.rows_apart("distances", gathered, asked)


def print_distances(rows):
    for text, chosen in distance.texts_of(rows):
        print(table(f"{text}: half a round trip, us (p50)", chosen, "p50_us", min, "raw_us"))
        print(table("The same: one way, 4 messages under way, GB/s", chosen, "gb_s", max, "raw_gb_s"))


def print_tcp(rows):
    for kind in dict.fromkeys(row["network"] for row in rows):
        chosen = [row for row in rows if row["network"] == kind]
        print(table(f"By {networks.text_of(kind)}: half a round trip, us (p50)", chosen, "p50_us", min, "raw_us"))
        print(table("The same: one way, 4 messages under way, GB/s", chosen, "gb_s", max, "raw_gb_s"))


def print_collectives(rows):
    """The mean counts where members are more than CPUs: who waits for one is seldom, and long."""
    for kind, members in dict.fromkeys((row["kind"], row["members"]) for row in rows):
        chosen = [row for row in rows if (row["kind"], row["members"]) == (kind, members)]
        what, raw, name = ("time_us", "raw_us", "mean") if members > os.cpu_count() else ("p50_us", "raw_p50_us", "p50")
        print(table(f"{kind}, {members} members, us ({name})", chosen, what, min, raw))


def main():
    options = arguments()
    if not {0, 1} <= os.sched_getaffinity(0):
        sys.exit("compare.py: the peers are pinned to CPUs 0 and 1, and this process may not use both")
    busy, note = Busy(), Notes()
    by_itself = {"tcp": (ask_tcp, print_tcp), "distances": (ask_distances, print_distances)}
    if options.question in by_itself:
        ask, show = by_itself[options.question]
        asked, rows = ask(options, note)
        about = machine(asked) | busy.fields()
        print(text_of(about))
        show(rows)
        return note.conclude(about, rows, options.json)
    line_ups = {"p2p": line_up.of_p2p, "pairs": line_up.of_pairs,
                "collectives": line_up.of_collectives}
    asked = list(line_ups) if options.question == "all" else [options.question]
    line_ups = {question: line_ups[question](options.mwbench, options) for question in asked}
    about = machine([one for contestants in line_ups.values() for one in contestants])
    rows = []

    def ask_all(question, contestants, sizes):
        gathered = take_turns(question, lambda one: getattr(one, question)(sizes), contestants,
                              options.rounds, note)
        rows.extend(rows_from(question, gathered, contestants))

    for question, sizes in (("p2p", options.sizes), ("pairs", options.pair_sizes)):
        if question in line_ups:
            ask_all(question, line_ups[question], sizes)
    if "collectives" in line_ups:
        ask_collectives(line_ups["collectives"], options, note, rows)
    about |= busy.fields()

    print(text_of(about))
    p2p = [row for row in rows if row["bench"] == "p2p"]
    pairs = [row for row in rows if row["bench"] == "pairs"]
    if p2p:
        print(table("Half a round trip, us (p50)", p2p, "p50_us", min, "raw_us"))
        print(table("One way, 4 messages under way, GB/s", p2p, "gb_s", max, "raw_gb_s"))
    for what, title, raw in (("mean_us", "mean", "raw_us"), ("p50_us", "p50", "raw_p50_us"), ("p99_us", "p99", None)):
        if pairs:
            print(table(f"Two pairs at once, not pinned, half a round trip, us ({title}, of the "
                        "slower pair)", pairs, what, min, raw))
    print_collectives([row for row in rows if row["bench"] == "collectives"])
    note.conclude(about, rows, options.json)
    if options.plot:
        subprocess.run([options.mwbench, "--no-launcher", "draw", options.json, options.plot], check=True)


main()
