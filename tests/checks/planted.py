"""The text of each planted bug is in its source once: a change of the source mends the list too."""

import json
import pathlib
import sys

root = pathlib.Path(__file__).resolve().parents[2]


def main():
    wrong, bugs = [], 0
    for path in sorted(root.glob("tests/*/planted_bugs.json")):
        for bug in json.loads(path.read_text()):
            bugs += 1
            found = (root / bug["file"]).read_text().count(bug["from"])
            if found != 1:
                wrong.append(f"{path.relative_to(root)}: the text of \"{bug['bug']}\" is found {found} times in {bug['file']}")
    if not bugs:
        wrong.append("there is no planted bug")
    print("\n".join(wrong) or f"the texts of {bugs} planted bugs are where they are said to be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
