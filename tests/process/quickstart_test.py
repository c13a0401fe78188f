#!/usr/bin/env python3
"""The demo tells the truth, ends by itself and when asked to, and leaves no process behind.

usage: quickstart_test.py PROGRAM [--backend nccl]

With a backend it runs on the emulated GPUs that the library path leads to.
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

from watched_program import ARGUMENTS, PROGRAM, claim, claim_nothing_is_left, failures

ON_GPUS = "nccl" in ARGUMENTS


SVG = "{http://www.w3.org/2000/svg}"
PAGES = ("#ffffff", "#0d1117")  # light and dark


def light_of(colour):
    parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    darker, lighter = sorted((light_of(one), light_of(other)))
    return (lighter + 0.05) / (darker + 0.05)


def claim_picture(file):
    """The picture has a strip for each world, and on it what was done to the world and when it came back."""
    drawn = xml.etree.ElementTree.parse(file).getroot()
    _, _, width, height = map(float, drawn.get("viewBox").split())
    marks = {}
    for strip in drawn.iter(SVG + "g"):
        if strip.get("id"):
            claim(f"{strip.get('id')} has a curve", strip.find(SVG + "path").get("d").count("H") > 20)
            found = [(mark.get("class"), float(mark.get("data-seconds")), mark.find(SVG + "text").text)
                     for mark in strip.findall(SVG + "g")]
            marks[strip.get("id")] = sorted(found, key=lambda mark: mark[1])
    what = {name: [f"{kind} {text}" for kind, _, text in found] for name, found in marks.items()}
    expected = {
        "a": "fault kill -9;back answers again after .* ms",
        "b": "fault kill -STOP;notice suspect;back answers .* ms after kill -CONT",
        "c": "fault 64 MiB given up",
        "control": "fault kill -9 of one;notice the whole group is gone",
    }
    for name, pattern in expected.items():
        claim(f"the marks of {name}", re.fullmatch(pattern, ";".join(what.get(name, []))), what.get(name))
    outside = [text.text for text in drawn.iter(SVG + "text")
               if not 0 <= float(text.get("x")) <= width or not 0 <= float(text.get("y")) <= height]
    claim("all words are on the picture", not outside, outside)
    colours = set(re.findall(r"#[0-9a-f]{6}", xml.etree.ElementTree.tostring(drawn, "unicode")))
    pale = [c for c in colours for page in PAGES if contrast(c, page) < 4]
    claim("every colour can be read on light and on dark pages", not pale, pale)


def run_to_the_end():
    with tempfile.TemporaryDirectory() as folder:
        picture = os.path.join(folder, "demo.svg")
        run_and_check("--plot", picture)
        claim_picture(picture)


def run_and_check(*options):
    done = subprocess.run([PROGRAM, "--json", *options, *ARGUMENTS], capture_output=True, text=True, timeout=60)
    claim("it ends with 0", done.returncode == 0, f"{done.returncode} {done.stderr[-500:]}")
    lines = done.stdout.splitlines()
    claim("standard output is one line", len(lines) == 1, f"{len(lines)} lines")
    seen = json.loads(lines[-1]) if lines else {}
    print(seen)
    claim("no healthy world lost anything", seen.get("healthy_lost") == 0)
    claim("every request was answered", seen.get("requests") == seen.get("answered") != 0)
    claim("requests of broken and suspect worlds were sent again", seen.get("retried", 0) >= 1)
    claim("a kill is noticed within a second", 0 < (seen.get("detect_ms") or -1) < 1000)
    # Silence counts from the last beat, which may have come a heartbeat before the stop.
    claim("a stopped worker is suspect at about a second", 700 < (seen.get("suspect_ms") or -1) < 2500)
    claim("the world forms again", 0 < (seen.get("reform_ms") or -1) < 10_000)
    claim("the backend is told", seen.get("backend") == ("nccl" if ON_GPUS else "host"))
    given_up = "withdrawn" if ON_GPUS else "cancelled_half_way"
    claim(f"a transfer was {given_up}", seen.get(given_up) is True)
    claim("its buffer was free for the next", seen.get("buffer_reusable") is True)
    claim_nothing_is_left()


def start():
    """The demo once its worlds are up, and the pids of the workers of a, b and c."""
    demo = subprocess.Popen([PROGRAM, *ARGUMENTS], stdout=subprocess.PIPE, text=True)
    workers = []
    for line in demo.stdout:
        if "workers of a, b, c:" in line:
            workers = [int(pid) for pid in re.findall(r"\b\d{2,}\b", line)]
        if "control   (MB/s)" in line:
            break
    return demo, workers


def kill_by_hand():
    demo, workers = start()
    os.kill(workers[2], signal.SIGKILL)
    rest, _ = demo.communicate(timeout=60)
    claim("a worker that its user kills is not held against the others", demo.returncode == 0, demo.returncode)
    claim("it says that this was not its own doing", f"pid {workers[2]}, the worker of c, was ended by" in rest)
    claim("its world forms again", "c@2 is up" in rest)


def look_without_gpus():
    environment = {**os.environ, "EMULATED_CUDA_DEVICES": "0"}
    done = subprocess.run([PROGRAM, *ARGUMENTS], capture_output=True, text=True, timeout=60, env=environment)
    claim("without a GPU it ends with 1", done.returncode == 1, done.returncode)
    claim("and one line says why", done.stdout == "" and done.stderr.count("\n") == 1, done.stderr)


def interrupt(number):
    demo, _ = start()
    demo.send_signal(number)
    rest, _ = demo.communicate(timeout=30)
    claim(f"{number.name} ends it with 0", demo.returncode == 0, demo.returncode)
    claim("what was asked has been answered first", " 0 unanswered" in rest)
    claim_nothing_is_left()


run_to_the_end()
if ON_GPUS:
    look_without_gpus()
else:
    kill_by_hand()
    interrupt(signal.SIGINT)
    interrupt(signal.SIGTERM)
sys.exit(bool(failures))
