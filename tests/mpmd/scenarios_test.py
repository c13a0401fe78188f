#!/usr/bin/env python3
"""Jobs as users have them: training in one group; prefill and decode behind a router. Instances of each are killed.

usage: scenarios_test.py MWGRAPH PRETRAIN_USER INFERENCE_USER
"""
import json
import os
import signal
import sys
import time

from one_host import LIMIT, Job, goal, gone, run, until

PRETRAIN_USER, INFERENCE_USER = (os.path.abspath(path) for path in sys.argv[2:4])
PRIME, RANKS, STEPS = 1_000_000_007, 4, 50
PAGE, TOKENS, REQUESTS = 4096, 16, 400


# --- training ---


def trained_by_one():
    weight = 1
    for step in range(1, STEPS + 1):
        weight = (weight * 3 + sum(step * rank for rank in range(1, RANKS + 1))) % PRIME
    return weight


def steps_of(job, instance):
    return next((i.get("steps", 0) for i in job.status()["instances"] if i["instance"] == instance), 0)


def ranks_that_are_lost_on_the_way_train_what_one_process_would():
    """graph B20: state is recorded at each step; a rank is killed, then two at once."""
    job = Job("pretrain", f"""\
name = "pretrain"
[role.rank]
run = ["{PRETRAIN_USER}", "{STEPS}"]
count = {RANKS}
ready = "told"
driver = true
[edge.ranks]
from = "rank"
to = "rank"
shape = "group"
""")
    before = job.until_ready(RANKS)
    pids = before
    for at, ranks in ((STEPS // 5, (2,)), (STEPS // 2, (0, 3))):
        until(lambda: steps_of(job, "rank.1") >= at, f"step {at} is not reached")
        for rank in ranks:
            os.kill(pids[f"rank.{rank}"], signal.SIGKILL)
        pids = job.until_ready(RANKS, {f"rank.{rank}": pids[f"rank.{rank}"] for rank in ranks})
        assert pids["rank.1"] == before["rank.1"]
    assert job.process.wait(LIMIT) == 0, job.ask("status").stdout
    for rank in range(RANKS):
        job.log_says(f"rank.{rank}", f"trained {STEPS} {trained_by_one()}")
    ends = {i["instance"]: i for i in job.status()["instances"]}
    assert [ends[f"rank.{rank}"]["incarnation"] for rank in range(RANKS)] == [2, 1, 2, 2], ends
    # The rank that stayed went on in later epochs of its world, and not from the start.
    lines = [line.split() for line in job.ask("logs", "rank.1").stdout.splitlines() if line.startswith("goes on")]
    assert len(lines) >= 3 and STEPS // 5 <= int(lines[1][3]) < int(lines[2][3]), lines


# --- inference ---


def inference(name, requests, gate=""):
    gate = f', "{gate}"' if gate else ""
    return f"""\
name = "{name}"
[role.router]
run = ["{INFERENCE_USER}", "router", "{requests}", "{os.path.abspath(name)}.lines"]
ready = "told"
drain = "1s"
driver = true
[role.prefill]
run = ["{INFERENCE_USER}", "prefill"{gate}]
count = 2
controller = "router"
ready = "told"
[role.decode]
run = ["{INFERENCE_USER}", "decode"]
count = 2
ready = "told"
[edge.kv]
from = "prefill"
to = "decode"
[edge.prompts]
from = "router"
to = "prefill"
kind = "calls"
[edge.answers]
from = "router"
to = "decode"
kind = "calls"
"""


def right_answer(request):
    token = first = request * 7 % 1009
    page = sum(request * 31 + n for n in range(PAGE))
    told = ""
    for _ in range(TOKENS):
        token = (token * 31 + page) % 1009
        told += f"{token} "
    return str(first), told


def lines_of(name):
    try:
        with open(f"{name}.lines", encoding="utf-8") as file:
            return [json.loads(line) for line in file if line.endswith("\n")]
    except FileNotFoundError:
        return []


def until_answered(name, count):
    until(lambda: len(lines_of(name)) >= count, lambda: f"{len(lines_of(name))} of {count} requests have ended")


def kill_under_load(name, pid):
    """Lets requests gather at a process, so that they are lost with it. Returns when that began."""
    began = time.monotonic()
    os.kill(pid, signal.SIGSTOP)
    # All that are on their way wait for it in the end.
    answered = -1
    while len(lines_of(name)) > answered and time.monotonic() < began + 0.8:
        answered = len(lines_of(name))
        time.sleep(0.1)
    os.kill(pid, signal.SIGKILL)
    return began


def longest_gap(lines, around):
    """Returns the longest time without an answer that began or ended within two seconds after a moment."""
    times = [around] + sorted(line["at"] for line in lines if line["at"] > around and line["ended"] == "ok")
    return max((b - a for a, b in zip(times, times[1:]) if a < around + 2), default=0.0)


def inference_that_loses_a_prefill_and_a_decode():
    """graph B30, B31, B32, B49: the router drives the others by calls, and is asked before a prefill is started again."""
    name = "inference"
    job = Job(name, inference(name, REQUESTS))
    before = job.until_ready(5)
    until_answered(name, REQUESTS // 4)
    prefill_died = kill_under_load(name, before["prefill.1"])
    job.log_says("router.0", "asked about prefill.1")
    until_answered(name, REQUESTS // 2)
    pids = job.pids()
    assert all(pids[each] == before[each] for each in ("decode.0", "decode.1", "prefill.0", "router.0")), (before, pids)
    decode_died = kill_under_load(name, pids["decode.1"])
    assert job.process.wait(LIMIT) == 0, job.ask("status").stdout
    lines = lines_of(name)
    assert sorted(line["request"] for line in lines) == list(range(REQUESTS))

    # Each has its tokens, but those that decode.1 had begun when it died.
    for line in lines:
        if line["ended"] == "ok":
            assert (line["first"], line["told"]) == right_answer(line["request"]), line
            continue
        # One that reached the successor finds no page there.
        assert line["ended"] in ("decode_lost", "the page is not here"), line
        assert line["first"] and line["tried"][-1][1] == 1 and line["at"] > decode_died, line
    lost = [line for line in lines if line["ended"] != "ok"]
    assert 0 < len(lost) <= 8, lost
    # What had no token yet was tried with another pair, thrice at most, and no pair twice.
    again = [line for line in lines if len(line["tried"]) > 1]
    assert again and all(len(line["tried"]) <= 3 for line in lines), again
    assert all(len(set(map(tuple, line["tried"]))) == len(line["tried"]) for line in lines), again

    pauses = [longest_gap(lines, died) for died in (prefill_died, decode_died)]
    paused = goal("the longest pause was", max(pauses), 1.5)
    # What prefills had kept for the dead decode is free.
    told = job.ask("logs", "prefill.0").stdout.splitlines()
    freed = [line.split() for line in told if line.startswith("freed") and "decode.1" in line]
    assert freed, told
    freed_in = goal("pages were free", float(freed[0][-1]) - decode_died, 1)
    ends = {i["instance"]: i["incarnation"] for i in job.status()["instances"]}
    # The job may end before another decode.1 has begun.
    assert ends.pop("decode.1") in (1, 2), ends
    assert ends == {"router.0": 1, "prefill.0": 1, "prefill.1": 2, "decode.0": 1}, ends
    return f"{paused}, {freed_in}; {len(again)} tried again, {len(lost)} lost"


def inference_without_a_prefill_has_no_capacity():
    """graph B33: decodes do not take the work of prefills that are not ready."""
    name = "gated"
    gate = os.path.abspath("gate")
    job = Job(name, inference(name, 2000, gate))
    until_answered(name, 16)
    assert all(line["ended"] == "no_capacity" and not line["tried"] for line in lines_of(name)), lines_of(name)
    for decode in ("decode.0", "decode.1"):
        assert "was asked" not in job.ask("logs", decode).stdout
    with open(gate, "w", encoding="ascii"):
        pass
    until(lambda: [line for line in lines_of(name) if line["ended"] == "ok"], "nothing is answered when they are ready")
    job.end()


# --- many ---


def long_a_thousand_processes_of_which_ten_are_killed():
    """graph B64: in real time, and nothing is left."""
    job = Job("thousand", 'name = "thousand"\n[role.many]\nrun = ["/bin/sleep", "3600"]\ncount = 1000\ngrace = "1s"\n')
    before = job.until_ready(1000)
    killed = {name: before[name] for name in list(before)[::100]}
    for pid in killed.values():
        os.kill(pid, signal.SIGKILL)
    after = job.until_ready(1000, killed)
    assert {k: v for k, v in after.items() if k not in killed} == {k: v for k, v in before.items() if k not in killed}
    assert job.end() == 0
    gone(after.values())


in_turn = ["ranks_", "inference_"] + (["long_"] if os.environ.get("MANYWORLDS_TEST_LONG") else [])
run([claim for name, claim in globals().items() if callable(claim) and name.startswith(tuple(in_turn))])
