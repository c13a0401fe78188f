"""What a comparison says beside its tables, and its rows for other programs."""

import json
import sys


class Notes:
    """What is called with a text notes it once, and says so at once."""

    def __init__(self):
        self.texts = []

    def __call__(self, text):
        if text not in self.texts:
            self.texts.append(text)
            print(text, file=sys.stderr)

    def conclude(self, about, rows, path):
        """Prints all of them, and writes the rows, behind what they were measured on, into a file if there is a path."""
        for text in self.texts:
            print(f"- {text}")
        if path:
            with open(path, "w") as out:
                for row in [about | {"notes": self.texts}, *rows]:
                    out.write(json.dumps(row) + "\n")
