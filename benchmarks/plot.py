"""Curves by contestant, on logarithmic axes, with the raw limit: plot.py JSON FILE.svg [--values A,B]

Reads what compare.py, fail.py and `mwbench --json` write, one object a line. A panel shows one value of one
question (of one kind and number of members), a curve one contestant with the span of its rounds."""

import argparse
import json
import math
import os
import sys

try:
    import matplotlib
    matplotlib.use("agg")
    from matplotlib import pyplot
except ImportError:
    sys.exit("plot.py needs matplotlib: apt-get install python3-matplotlib, and /usr/bin/python3")

OURS = "manyworlds"
LABELS = {"p50_us": "us (p50)", "time_us": "us (mean)", "mean_us": "us (mean)", "gb_s": "GB/s",
          "many_us": "us, many worlds", "many_gb_s": "GB/s, many worlds", "ms": "ms to the notice"}
# What is shown of it beside the contestants.
LIMITS = {"p50_us": {"raw": ("raw_us", "limit_us")}, "gb_s": {"raw": ("raw_gb_s", "limit_gb_s")},
          "many_us": {"one world": ("one_us",), "raw": ("raw_us",)},
          "many_gb_s": {"one world": ("one_gb_s",)}}
PER_ROW = 3


def read(path):
    with open(path) as lines:
        rows = [json.loads(line) for line in lines if line.startswith("{")]
    machines = [row for row in rows if row["bench"] == "machine"]
    return (machines or [{}])[0], [row for row in rows if row["bench"] != "machine"]


def group_of(row):
    """What shares a panel."""
    return tuple(row.get(name) for name in ("bench", "kind", "members", "fault"))


def values_of(rows, cpus):
    """Where members are more than CPUs who waits for one is seldom, and long: the mean tells."""
    bench, _, members, _ = group_of(rows[0])
    if bench == "collectives":
        return ["time_us" if members and members > cpus else "p50_us"]
    if bench == "pairs":
        return ["mean_us"]
    return [value for value in ("p50_us", "gb_s", "many_us", "many_gb_s", "ms") if any(
        value in row for row in rows)]


def title_of(group):
    bench, kind, members, fault = group
    words = [kind or bench, f"{members} members" if members else "", fault or ""]
    return ", ".join(word for word in words if word)


def curve(axes, name, points, **style):
    points = sorted(point for point in points if point[1] and point[0])
    if points:
        axes.plot(*zip(*points), label=name, **style)


def draw_curves(axes, rows, value, colours):
    for who in dict.fromkeys(row.get("who", OURS) for row in rows):
        own = sorted((row for row in rows if row.get("who", OURS) == who and row.get(value)
                      and row["size"]), key=lambda row: row["size"])
        curve(axes, who, [(row["size"], row[value]) for row in own], marker=".",
              color=colours[who], linewidth=2.5 if who == OURS else 1, zorder=3 if who == OURS else 2)
        spans = [(row["size"], min(row[value + "_rounds"]), max(row[value + "_rounds"]))
                 for row in own if row.get(value + "_rounds")]
        if spans:
            axes.fill_between(*zip(*spans), alpha=0.12, color=colours[who], linewidth=0)
    for name, columns in LIMITS.get(value, {}).items():
        points = {row["size"]: row[c] for row in rows for c in columns if row.get(c)}
        curve(axes, name, points.items(), linestyle="--" if name == "raw" else ":", color="grey")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    ticks = sorted({row["size"] for row in rows if row["size"]})
    axes.set_xticks(ticks, [human(size) for size in ticks], rotation=45, fontsize=7)
    axes.minorticks_off()
    axes.set_ylabel(LABELS.get(value, value))


def draw_bars(axes, rows, value, colours):
    """No sizes, or one: a bar each; who has no value says why in its place."""
    names = [row.get("who", OURS) for row in rows]
    axes.barh(names, [row.get(value) or 0 for row in rows],
              color=[colours[name] for name in names])
    axes.set_xscale("log")
    least = min((row[value] for row in rows if row.get(value)), default=1)
    axes.set_xlim(left=least / 10)
    for place, row in enumerate(rows):
        words = [number(row[value])] if row.get(value) else []
        words += [row["told"].split(":")[0]] if "told" in row else []
        axes.text(row.get(value) or least / 10, place, " " + ", ".join(words), va="center", fontsize=7)
    # Room for the words.
    axes.set_xlim(right=10 * max((row.get(value) or 0 for row in rows), default=1))
    axes.invert_yaxis()
    axes.set_xlabel(LABELS.get(value, value))


def human(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size} B"


def number(value):
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def panels_of(rows, cpus, asked):
    groups = {}
    for row in rows:
        groups.setdefault(group_of(row), []).append(row)
    return [(group, value, members) for group, members in groups.items()
            for value in asked or values_of(members, cpus) if any(r.get(value) for r in members)]


def main():
    parse = argparse.ArgumentParser(description=__doc__)
    parse.add_argument("json")
    parse.add_argument("svg")
    parse.add_argument("--values", type=lambda text: text.split(","), help="columns to show")
    options = parse.parse_args()
    about, rows = read(options.json)
    panels = panels_of(rows, about.get("cpus", os.cpu_count()), options.values)
    if not panels:
        sys.exit(f"{options.json} has nothing that could be shown")
    names = dict.fromkeys(row.get("who", OURS) for row in rows)
    colours = {who: f"C{place % 10}" for place, who in enumerate(names)} | {OURS: "black"}
    across = min(PER_ROW, len(panels))
    down = math.ceil(len(panels) / across)
    figure, grid = pyplot.subplots(down, across, figsize=(6 * across, 4.2 * down), squeeze=False)
    for axes in grid.flat[len(panels):]:
        axes.remove()
    for axes, (group, value, of_panel) in zip(grid.flat, panels):
        has_sizes = len({row["size"] for row in of_panel if row.get("size")}) > 1
        (draw_curves if has_sizes else draw_bars)(axes, of_panel, value, colours)
        axes.set_title(title_of(group), fontsize=10)
        axes.grid(True, alpha=0.3)
        if has_sizes:
            axes.legend(fontsize=7)
    told = [str(about[name]) for name in ("processor", "kernel", "commit", "date") if name in about]
    figure.suptitle(", ".join(told), fontsize=8)
    figure.tight_layout()
    figure.savefig(options.svg)


main()
