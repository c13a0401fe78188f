#!/usr/bin/env python3
"""Plants each bug of planted_bugs.json into a copy of one source file, and has the seeds find it.

The original must pass the same seeds. A bug whose text is not found exactly once fails the test: the
source has changed, and the list must follow it.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

SEEDS = 200
LIMIT = 120  # seconds for one program; a bug that hangs the simulation is found too


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
    def __init__(self, args):
        self.build = pathlib.Path(args.build).resolve()
        self.source = pathlib.Path(args.source).resolve()
        self.work = self.build / "planted_bugs"
        self.work.mkdir(exist_ok=True)
        self.runner = pathlib.Path(args.runner).resolve()
        target = str(self.runner.relative_to(self.build))
        self.commands = commands_of(args.ninja, self.build, target)
        self.link = self.commands[-1]

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
        program = self.work / f"seed_runner_{number}"
        link = replaced(self.link, "-o", str(program))
        at = link.index("-o") + 2
        link[at:at] = [str(o) for o in objects]
        self.run(link)
        return program

    def compile_users(self, number, bug, changed):
        """Of a header: the sources that use it, in a copy of all sources."""
        copies = self.work / f"{number}_sources"
        shutil.rmtree(copies, ignore_errors=True)
        shutil.copytree(self.source / "src", copies / "src")
        (copies / bug["file"]).write_text(changed)
        objects = [self.compile(f"{number}_{i}", self.source / user, copies / user)
                   for i, user in enumerate(bug["users"])]
        shutil.rmtree(copies)
        return objects

    def compile(self, name, original, copy):
        command, word = compile_command(self.commands, self.build, original)
        place = self.work / f"{name}.o"
        command = replaced(command, "-o", str(place))
        for option in ("-MF", "-MQ"):
            command = replaced(command, option, str(place) + ".d")
        command[command.index(word)] = str(copy)
        # Much of the time is the optimizer's, and the machine may warn of what the bug leaves unused.
        command += ["-O1", "-w", f"-I{original.parent}"]
        self.run(command)
        return place

    def run(self, command):
        done = subprocess.run(command, cwd=self.build, capture_output=True, text=True)
        if done.returncode != 0:
            raise LookupError("it does not build:\n" + done.stdout + done.stderr)


def verdict(program, scenario):
    """How the seeds end, and what they say."""
    env = dict(os.environ, MALLOC_PERTURB_="165")
    try:
        done = subprocess.run([str(program), scenario, "1", str(SEEDS)], capture_output=True,
                              text=True, errors="replace", timeout=LIMIT, env=env)
    except subprocess.TimeoutExpired:
        return None, "hangs"
    lines = (done.stdout + done.stderr).strip().splitlines()
    return done.returncode, "\n".join(lines[:2])[:300]


def judge(plant, number, bug):
    """None if the bug is found, else why not; and a line to print."""
    try:
        program = plant.program(number, bug)
    except LookupError as trouble:
        return str(trouble), ""
    code, words = verdict(program, bug.get("scenario", "random"))
    program.unlink()
    if code == 0:
        return f"{SEEDS} seeds do not find it", ""
    if code is not None and code < 0:
        words = f"ended by signal {-code}"
    return None, words


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--list", action="store_true", help="only name the sources that are replaced")
    parser.add_argument("--build")
    parser.add_argument("--source")
    parser.add_argument("--runner")
    parser.add_argument("--ninja", default="ninja")
    parser.add_argument("--only", help="bugs whose description contains this")
    args = parser.parse_args()
    bugs = json.loads((pathlib.Path(__file__).parent / "planted_bugs.json").read_text())
    if args.list:
        print(*sorted({source for bug in bugs for source in bug.get("users", [bug["file"]])}))
        return 0
    plant = Plant(args)
    bugs = [b for b in bugs if not args.only or args.only in b["bug"]]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for scenario in ("random", "shared", "forming", "forming-shared", "shrinking",
                         "shrinking-shared", "disagreeing", "disagreeing-shared", "requests",
                         "requests-shared", "dispatch", "dispatch-shared", "lost-store",
                         "late-words"):
            code, words = verdict(plant.runner, scenario)
            if code != 0:
                failed += 1
                print(f"NOT CLEAN the original fails {scenario} seeds: {words}")
        results = pool.map(lambda each: judge(plant, *each), enumerate(bugs))
        for bug, (trouble, words) in zip(bugs, results):
            failed += trouble is not None
            print(f"{'MISSED' if trouble else 'found '} {bug['bug']}: {trouble or words}", flush=True)
    print(f"{len(bugs)} planted bugs, {failed} failures")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
