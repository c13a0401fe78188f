"""What `mwbench --json` printed, as tables in Markdown: markdown.py JSON"""

import itertools
import json
import sys


def cell(value):
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    return str(value)


def main():
    with open(sys.argv[1]) as lines:
        rows = [json.loads(line) for line in lines]
    rows = [row for row in rows if row["bench"] != "machine"]
    # What has the same columns shares a table.
    for (bench, *names), of_table in itertools.groupby(rows, lambda row: (row["bench"], *row)):
        names = [name for name in names if name != "bench"]
        print(f"**{bench}**\n\n| " + " | ".join(names) + " |\n" + "|---" * len(names) + "|")
        for row in of_table:
            print("| " + " | ".join(cell(row[name]) for name in names) + " |")
        print()


main()
