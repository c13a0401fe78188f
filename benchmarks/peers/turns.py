"""The contestants take turns, A B C D A B C D ..., and medians over the rounds are compared: a machine
that drifts favours none."""

import statistics
import sys

from programs import Failed


def present_of(contestants, note):
    for one in contestants:
        if one.missing():
            note(f"{one.name} is not here: install {one.package}")
    return [one for one in contestants if not one.missing()]


def turns_of(question, ask, present, rounds, note):
    """(who, answer) of each turn; who fails once is not asked again."""
    present = list(present)
    for round_number in range(rounds):
        for one in list(present):
            print(f"{question} {round_number + 1}/{rounds}: {one.name}", file=sys.stderr)
            try:
                yield one, ask(one)
            except Failed as failure:
                note(f"{one.name}: {round_number} of {rounds} rounds of {question}: {failure}")
                present.remove(one)


def take_turns(question, ask, contestants, rounds, note):
    """{name: {size: {what: [a value a round]}}} of those who are here and answer."""
    gathered = {}
    for one, answer in turns_of(question, ask, present_of(contestants, note), rounds, note):
        for size, row in answer.items():
            into = gathered.setdefault(one.name, {}).setdefault(size, {})
            for what, value in row.items():
                if isinstance(value, (int, float)):
                    into.setdefault(what, []).append(value)
    return gathered


def rows_from(question, gathered, contestants):
    compared = {one.name: one.compared for one in contestants}
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
