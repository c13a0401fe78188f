"""How far the two CPUs are from each other. The host of a virtual machine decides it, and may change it each minute:
figures of turns that met different distances are not compared."""

import os
import statistics

from programs import HERE, Failed, rows_of, run
from turns import rows_from

# A line that another CPU has: below it the two share a core or a cache.
NEAR_US = 0.15
# Of fewer turns nothing is said.
LEAST_TURNS = 3


def name_of(line_us):
    return "near" if line_us < NEAR_US else "far"


class Line:
    """The program of line.c, compiled when that is newer."""

    def __init__(self, build):
        self.program = os.path.join(build, "line")
        source = os.path.join(HERE, "line.c")
        if not os.path.exists(self.program) or os.path.getmtime(self.program) < os.path.getmtime(source):
            os.makedirs(build, exist_ok=True)
            try:
                run(["gcc", "-std=c11", "-O2", "-Wall", "-Wextra", "-o", self.program + ".new", source])
            except FileNotFoundError:
                raise Failed("gcc is not here, which compiles line.c") from None
            os.replace(self.program + ".new", self.program)

    def now_us(self):
        return rows_of(run([self.program]))[0]["line_ns"] / 1e3

    def beside(self, ask):
        """Makes a question of `ask` that also notes how long the line's way takes before and after."""
        def asked(one):
            before = self.now_us()
            answer = ask(one)
            after = self.now_us()
            return {size: row | {"before": before, "after": after} for size, row in answer.items()}
        return asked


def turns_that_met(distance, values):
    """Returns which turns met it both before and after."""
    both = zip(values["before"], values["after"])
    return [i for i, ends in enumerate(both) if all(name_of(end) == distance for end in ends)]


def rows_apart(bench, gathered, contestants):
    """Returns rows as turns.py does, for each distance of the turns that met it."""
    rows = []
    for distance in ("near", "far"):
        chosen = {}
        for who, sizes in gathered.items():
            for size, values in sizes.items():
                met = turns_that_met(distance, values)
                if len(met) >= LEAST_TURNS:
                    of_turns = {what: [some[i] for i in met] for what, some in values.items()}
                    chosen.setdefault(who, {})[size] = of_turns | {"line_us": of_turns["before"]}
        rows += [row | {"distance": distance, "turns": len(row["line_us_rounds"])}
                 for row in rows_from(bench, chosen, contestants)]
    return rows


def texts_of(rows):
    """Yields a title, and the rows, of each distance that was met."""
    for distance in ("near", "far"):
        chosen = [row for row in rows if row["distance"] == distance]
        if chosen:
            line = statistics.median(row["line_us"] for row in chosen)
            turns = [row["turns"] for row in chosen]
            yield f"Where CPUs are {distance} (a line {1e3 * line:.0f} ns, {min(turns)} to {max(turns)} turns)", chosen
