"""The code that README.md shows is code that is built: whole programs, or parts of them."""

import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parents[2]
# In the order in which it shows them.
SOURCES = [
    "examples/hello.cpp",
    "examples/service.cpp",
    "examples/gpu_world.cpp",
    "tests/interface/programs.cpp",
    "examples/kv_transfer/decode.hpp",
]
WHOLE = ["examples/hello.cpp", "examples/gpu_world.cpp"]

shown = re.findall(r"^```cpp\n(.*?)^```", (root / "README.md").read_text(), re.M | re.S)
wrong = []
if len(shown) != len(SOURCES):
    wrong.append(f"README.md shows {len(shown)} pieces of code, and {len(SOURCES)} are known here")
for code, source in zip(shown, SOURCES):
    # Without its opening comment.
    built = re.sub(r"\A(//.*\n)+", "", (root / source).read_text())
    if code != built if source in WHOLE else code not in built:
        wrong.append(f"README.md does not show {source} as it is")
print("\n".join(wrong))
sys.exit(bool(wrong))
