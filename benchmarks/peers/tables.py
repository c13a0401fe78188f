"""Results, and tables of them in Markdown, as they stand in results/."""

import json
import os

from contestants import Mwbench

OURS = Mwbench.name


def rows_in(folder, name):
    """What one file of a folder of results says; nothing if it is not there."""
    path = os.path.join(folder, name + ".json")
    if not os.path.exists(path):
        return []
    with open(path) as lines:
        return [json.loads(line) for line in lines]


def table(title, rows, what, better, raw=None):
    """One line a size: the raw limit, ours, the others, and ours against raw and the best other."""
    rows = [row for row in rows if what in row]
    names = list(dict.fromkeys(row["who"] for row in rows))
    compared = {row["who"] for row in rows if row["compared"]} - {OURS}
    value = {(row["who"], row["size"]): row[what] for row in rows}
    # Of ours: another engine's turns have a limit of their own.
    limit = {row["size"]: row[raw] for row in rows if raw in row and row["who"] == OURS}
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
