#!/usr/bin/env python3
"""Plants each bug of a list into a copy of one source file, and has the bug's test find it.

A test is a program of this build with its arguments: a doctest case on a machine, or seeds of a
scenario. The original must pass it within the bug's limit: a test that takes longer would find any bug.
A bug fails if its text is not found exactly once: the source has changed, and the list must follow it.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import resource
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

SEEDS = 200
LIMIT = 120  # seconds for one program, unless the bug says less; one that hangs it is found too
# Of seeds, which compute all the time: a bug may do so, or take memory, without end. The original's take 13 s.
PROCESSOR = 60  # seconds
MEMORY = 2 << 30  # bytes of address space


def commands_of(ninja, build, target):
    text = subprocess.run([ninja, "-C", build, "-t", "commands", target],
                          check=True, capture_output=True, text=True).stdout
    return [shlex.split(line) for line in text.splitlines() if line.strip()]


def compile_command(commands, build, source):
    for command in commands:
        for word in command:
            if word.endswith(".cpp") and (build / word).resolve() == source:
                return command, word
    raise SystemExit(f"this build does not compile {source}")


def replaced(command, option, value):
    command = list(command)
    command[command.index(option) + 1] = value
    return command


class Plant:
    def __init__(self, args, work):
        self.build = pathlib.Path(args.build).resolve()
        self.source = pathlib.Path(args.source).resolve()
        self.work = pathlib.Path(work)
        self.programs = {name: pathlib.Path(path).resolve() for name, path in args.program}
        self.commands = []
        self.links = {}
        for name, path in self.programs.items():
            commands = commands_of(args.ninja, self.build, str(path.relative_to(self.build)))
            self.commands += commands
            self.links[name] = commands[-1]

    def program(self, number, bug):
        """Compiles the changed copy as the original was, and links it before the library."""
        original = self.source / bug["file"]
        text = original.read_text()
        found = text.count(bug["from"])
        if found != 1:
            raise LookupError(f"its text is found {found} times in {bug['file']}")
        changed = text.replace(bug["from"], bug["to"])
        if original.suffix == ".cpp":
            copy = self.work / f"{number}_{original.name}"
            copy.write_text(changed)
            objects = [self.compile(f"{number}", original, copy)]
        else:
            objects = self.compile_users(number, bug, changed)
        program = self.work / f"program_{number}"
        link = replaced(self.links[bug["program"]], "-o", str(program))
        at = link.index("-o") + 2
        link[at:at] = [str(o) for o in objects]
        self.run(link)
        return program

    def compile_users(self, number, bug, changed):
        """Of a header: the sources that use it, in a copy of all sources."""
        copies = self.work / f"{number}_sources"
        shutil.copytree(self.source / "src", copies / "src")
        (copies / bug["file"]).write_text(changed)
        objects = [self.compile(f"{number}_{i}", self.source / user, copies / user, copies / "src")
                   for i, user in enumerate(bug["users"])]
        shutil.rmtree(copies)
        return objects

    def compile(self, name, original, copy, headers=None):
        command, word = compile_command(self.commands, self.build, original)
        place = self.work / f"{name}.o"
        command = replaced(command, "-o", str(place))
        for option in ("-MF", "-MQ"):
            command = replaced(command, option, str(place) + ".d")
        command[command.index(word)] = str(copy)
        if headers:
            # Before the folder with the originals.
            first = next(at for at, option in enumerate(command) if option.startswith("-I"))
            command.insert(first, f"-I{headers}")
        # Much of the time is the optimizer's, and the machine may warn of what the bug leaves unused.
        command += ["-O1", "-w", f"-I{original.parent}"]
        self.run(command)
        return place

    def run(self, command):
        done = subprocess.run(command, cwd=self.build, capture_output=True, text=True)
        if done.returncode != 0:
            raise LookupError("it does not build:\n" + done.stdout + done.stderr)


class Test:
    """What a bug is found by."""

    def __init__(self, bug, machines):
        self.program = bug["program"]
        self.case = bug.get("case")
        if self.case:
            # A comma would begin another name.
            self.arguments = ("--test-case=" + self.case.replace(",", "*"),)
        else:
            self.arguments = (bug.get("scenario", "random"), "1", str(SEEDS))
        self.limit = bug.get("limit", LIMIT)
        self.machine = bug.get("machine")
        self.settings = machines[self.machine] if self.machine else []

    def __str__(self):
        words = [self.program, self.case or self.arguments[0]]
        return ": ".join(words) + (f" (on {self.machine})" if self.machine else "")

    def run(self, program):
        """Its exit status, None if it does not end in time; and what it says."""
        env = dict(os.environ, MALLOC_PERTURB_="165")
        env.update(each.split("=", 1) for each in self.settings)
        with tempfile.TemporaryFile("w+", errors="replace") as said:
            process = subprocess.Popen([str(program), *self.arguments], stdout=said, stderr=said,
                                       stdin=subprocess.DEVNULL, env=env, start_new_session=True)
            if not self.case:
                resource.prlimit(process.pid, resource.RLIMIT_AS, (MEMORY, MEMORY))
                resource.prlimit(process.pid, resource.RLIMIT_CPU, (PROCESSOR, PROCESSOR))
            ended = os.pidfd_open(process.pid)
            in_time = select.select([ended], [], [], self.limit)[0]
            os.close(ended)
            # Not waited for yet, so the number is its own. Members of its worlds may be left.
            os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
            said.seek(0)
            return (code if in_time else None), said.read()

    def objection(self, program):
        """Why the original is not clean; None if it is."""
        code, said = self.run(program)
        if code is None:
            return f"does not end within {self.limit} s"
        if code != 0:
            return f"ends with {code}: {last_words(said)}"
        if self.case and not re.search(r"test cases: +[1-9]", said):
            return "there is no such case"
        return None


def last_words(said):
    lines = said.strip().splitlines()
    errors = [at for at, line in enumerate(lines) if "ERROR:" in line]
    return "\n".join(lines[errors[0] if errors else 0:][:2])[:300]


def judge(plant, number, bug, test):
    """None if the bug is found, else why not; and a line to print."""
    try:
        program = plant.program(number, bug)
    except LookupError as trouble:
        return str(trouble), ""
    code, said = test.run(program)
    program.unlink()
    if code == 0:
        return f"{test} does not find it", ""
    if code is None:
        return None, "hangs"
    return None, last_words(said) if code > 0 else f"ended by signal {-code}"


def is_drawn(bug, source):
    """Of MANYWORLDS_PLANTED_PART=N one of N bugs is planted: others whenever their source changes, and the same for one
    tree. Without it all are."""
    part = int(os.environ.get("MANYWORLDS_PLANTED_PART", "1"))
    drawn = hashlib.sha256((source / bug["file"]).read_bytes() + bug["bug"].encode()).digest()
    return int.from_bytes(drawn[:8], "big") % part == 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lists", nargs="+", help="the bugs, in JSON")
    parser.add_argument("--list", action="store_true", help="only name the sources that are replaced")
    parser.add_argument("--build")
    parser.add_argument("--source")
    parser.add_argument("--program", nargs=2, action="append", metavar=("NAME", "PATH"))
    parser.add_argument("--machine", nargs="+", action="append", default=[],
                        metavar=("NAME", "VARIABLE=VALUE"))
    parser.add_argument("--ninja", default="ninja")
    parser.add_argument("--only", help="bugs with this in their description")
    args = parser.parse_args()
    bugs = [bug for each in args.lists for bug in json.loads(pathlib.Path(each).read_text())]
    if args.list:
        print(*sorted({source for bug in bugs for source in bug.get("users", [bug["file"]])}))
        return 0
    for bug in bugs:
        bug.setdefault("program", args.program[0][0])
    machines = {name: settings for name, *settings in args.machine}
    bugs = [b for b in bugs if not args.only or args.only in b["bug"]]
    bugs = [b for b in bugs if is_drawn(b, pathlib.Path(args.source))]
    tests = [Test(b, machines) for b in bugs]
    failed = 0
    with tempfile.TemporaryDirectory(prefix="planted_bugs_", dir=args.build) as work, \
            concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        plant = Plant(args, work)
        # Of several limits the least.
        originals = {str(t): t for t in sorted(tests, key=lambda t: -t.limit)}
        objections = pool.map(lambda t: t.objection(plant.programs[t.program]), originals.values())
        for name, objection in zip(originals, objections):
            failed += objection is not None
            if objection:
                print(f"NOT CLEAN the original's {name} {objection}")
        results = pool.map(lambda each: judge(plant, *each), zip(range(len(bugs)), bugs, tests))
        for bug, (trouble, words) in zip(bugs, results):
            failed += trouble is not None
            print(f"{'MISSED' if trouble else 'found '} {bug['bug']}: {trouble or words}", flush=True)
    print(f"{len(bugs)} planted bugs, {failed} failures")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
