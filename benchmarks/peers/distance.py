"""How far the two CPUs are from each other. The host of a virtual machine decides it, and may change it each minute:
figures of turns that met different distances are not compared."""

import os
import statistics

from programs import HERE, rows_of, run

# A line that another CPU has: below it the two share a core or a cache.
NEAR_US = 0.15


def name_of(line_us):
    return "near" if line_us < NEAR_US else "far"


class Line:
    """line.c, compiled when it is newer."""

    def __init__(self, build):
        self.program = os.path.join(build, "line")
        source = os.path.join(HERE, "line.c")
        if not os.path.exists(self.program) or os.path.getmtime(self.program) < os.path.getmtime(source):
            os.makedirs(build, exist_ok=True)
            run(["gcc", "-std=c11", "-O2", "-o", self.program + ".new", source])
            os.replace(self.program + ".new", self.program)

    def now_us(self):
        return rows_of(run([self.program]))[0]["line_ns"] / 1e3

    def beside(self, ask):
        """What `ask` gives, and how long the line's way was before it and after."""
        def asked(one):
            before = self.now_us()
            answer = ask(one)
            after = self.now_us()
            return {size: row | {"before": before, "after": after} for size, row in answer.items()}
        return asked


def rows_apart(bench, gathered, contestants):
    """Of each distance the medians of those turns that met it both before and after."""
    compared = {one.name: one.compared for one in contestants}
    rows = []
    for who, sizes in gathered.items():
        for size, values in sizes.items():
            ends = [(name_of(before), name_of(after)) for before, after in zip(values["before"], values["after"])]
            for distance in ("near", "far"):
                met = [i for i, both in enumerate(ends) if both == (distance, distance)]
                if not met:
                    continue
                row = {"bench": bench, "who": who, "size": size, "compared": compared[who], "distance": distance,
                       "turns": len(met), "line_us": statistics.median(values["before"][i] for i in met)}
                for what, of_turns in values.items():
                    if what.endswith(("_us", "gb_s")):
                        row[what] = float(f"{statistics.median(of_turns[i] for i in met):.4g}")
                rows.append(row)
    return rows


def texts_of(rows):
    """Title and rows of each distance that was met."""
    for distance in ("near", "far"):
        chosen = [row for row in rows if row["distance"] == distance]
        if chosen:
            line = statistics.median(row["line_us"] for row in chosen)
            turns = [row["turns"] for row in chosen]
            yield f"Where CPUs are {distance} (a line {1e3 * line:.0f} ns, {min(turns)} to {max(turns)} turns)", chosen
