"""The reference can be made: every public member is documented, and one that is not would be found.
reference.py FOLDER DOXYGEN"""

import pathlib
import shutil
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parents[2]
folder, doxygen = pathlib.Path(sys.argv[1]), sys.argv[2]
maker = root / "src/package/reference.py"
# One of each that Doxygen must ask for, beside what needs no comment of its own.
planted = """#pragma once
namespace manyworlds::inline v0 {
/// A class.
class planted {
 public:
  planted() = default;
  /// Describes one.
  explicit planted(int a);
  planted(planted&& other) noexcept;
  planted(const planted&) = delete;
  planted& operator=(const planted&) = delete;
  [[nodiscard]] int size() const noexcept { return 0; }
  /// Is documented.
  void first(int a) {}
  void first(long a) {}
  void second();
};
/// A constant, and another.
inline constexpr int third = 3;
inline constexpr int fourth = 4;

void fifth();
}  // namespace manyworlds::inline v0
"""
pages = ["classmanyworlds_1_1world", "classmanyworlds_1_1runtime", "structmanyworlds_1_1world__options", "index"]


def make(into, *settings):
    shutil.rmtree(into, ignore_errors=True)
    command = [sys.executable, str(maker), doxygen, str(into), *settings]
    return subprocess.run(command, capture_output=True, text=True)


def main():
    made = make(folder / "made")
    if made.returncode:
        return [f"the reference cannot be made:\n{made.stderr}"]
    wrong = [f"there is no page {page}" for page in pages if not (folder / f"made/html/{page}.html").is_file()]
    if list((folder / "made/html").glob("*detail*")):
        wrong.append("what stands in detail has pages")

    header = folder / "planted.hpp"
    header.write_text(planted)
    refused = make(folder / "refused", f"INPUT += {header}")
    asked = sorted(line.split("Member ")[1].split("(")[0] for line in refused.stderr.splitlines() if "Member " in line)
    if asked != ["fifth", "second"] or not refused.returncode:
        wrong.append(f"of the planted members it asks for {asked}: {refused.returncode} {refused.stderr}")
    read = subprocess.run([sys.executable, str(maker), "--read", str(header)], capture_output=True, text=True).stdout
    if read.count("Describes one.") != 1 or read.count("Takes what the other has.") != 1 or "delete" in read:
        wrong.append(f"a move says what another constructor does, or what is deleted is shown:\n{read}")
    return wrong


if not doxygen:
    print("skipped: there is no doxygen")
    sys.exit(77)
wrong = main()
print("\n".join(wrong))
sys.exit(bool(wrong))
