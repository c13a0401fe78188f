"""The program that README.md shows is examples/hello.cpp, which is built."""

import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parents[2]
shown = re.search(r"^```cpp\n(.*?)^```", (root / "README.md").read_text(), re.M | re.S)[1]
# Without its opening comment.
built = re.sub(r"\A(//.*\n)+", "", (root / "examples/hello.cpp").read_text())
if shown != built:
    print("README.md does not show examples/hello.cpp as it is")
sys.exit(shown != built)
