#!/usr/bin/env python3
"""An example does what its opening comment says, ends by itself and leaves no process behind.

usage: examples_test.py PROGRAM [ARGUMENTS]

With --by-hand it is run as in several terminals, one process each; with --by-launcher as a launcher starts it.
"""
import os
import re
import socket
import subprocess
import sys

from watched_program import ARGUMENTS, PROGRAM, claim, claim_nothing_is_left, failures

NAME = os.path.basename(PROGRAM)
COLLECTIVES = ["all_gather", "all_reduce", "broadcast", "gather", "reduce", "scatter"]


def run():
    if "--roll-out" in ARGUMENTS:
        ARGUMENTS[1] = os.environ.get("MANYWORLDS_ROLL_OUT_SECONDS", ARGUMENTS[1])
    done = subprocess.run([PROGRAM, *ARGUMENTS], capture_output=True, text=True, timeout=100)
    print(done.stdout)
    claim("it ends with 0", done.returncode == 0, done.returncode)
    claim("nothing is on standard error", done.stderr == "", done.stderr[-500:])
    claim_nothing_is_left()
    return done.stdout


def broken(out):
    """Which worlds broke, in which epochs."""
    return sorted(set(re.findall(r"(world\d+@\d+) broken", out)))


def numbers(pattern, out):
    found = re.search(pattern, out)
    claim(f"it tells: {pattern}", found is not None)
    return [int(n) for n in found.groups()] if found else [-1] * 9


def collective(out):
    claim("only the world of the killed one broke", broken(out) == ["world1@1"], broken(out))
    who = sorted(re.findall(r"world1 rank (\d) caught an error", out))
    claim("both who are left heard of it", who == ["0", "1"], who)
    claim("the other world's members came to the end", len(re.findall(r"world2 rank \d step 100:", out)) == 3)
    claim("the broken world's did not", "world1 rank 0 step 100" not in out)
    sums = re.findall(r"(\d) \+ (\d) \+ (\d) = (\d+)", out)
    for a, b, c, total in sums:
        claim("a sum is right", int(a) + int(b) + int(c) == int(total))
    claim("sums are told where there are sums", bool(sums) == (NAME in ("all_reduce", "reduce")))


def send_recv(out):
    claim("only the world of the killed sender broke", broken(out) == ["world1@1"], broken(out))
    after = out.split("kill -9")[1]
    claim("the other was received from meanwhile", len(re.findall("in world2", after)) >= 3)
    claim("the sender that came back was received from", after.count("in world1") >= 3, after.count("in world1"))


def pipeline(out):
    # Of the killed stage: see the shapes in pipeline.cpp.
    beside = ["world3@1", "world5@1", "world7@1", "world8@1"] if "mesh" in ARGUMENTS else ["world2@1", "world4@1"]
    case = "B17" if "mesh" in ARGUMENTS else "B16"
    claim(f"{case}: the worlds beside the killed stage broke, and no other", broken(out) == beside, broken(out))
    asked, answered, dropped, wrong = numbers(
        r"(\d+) requests, (\d+) answered; \d+ given out again, (\d+) second answers dropped, (\d+) wrong", out)
    claim(f"{case}: every request was answered once", asked == answered > 1000, (asked, answered, dropped))
    claim("and rightly", wrong == 0)


def kv_transfer(out):
    claim("the world broke with prefill, and no more", broken(out) == ["world1@1"], broken(out))
    whole, given_up, wrong, again = numbers(
        r"(\d+) requests came whole, (\d+) were given up, (\d+) came wrong; (\d+) were asked again", out)
    claim("each request came whole or was given up", whole + given_up == 200 and whole > 50 and given_up > 20)
    claim("what came was right", wrong == 0)
    claim("what was open at the kill was asked again", again > 0)
    claim("both pools have all pages back", out.count("288 of 288 pages are back, 0 were written while free") == 2)


def decode_graph(out):
    claim("the world broke with rank 1, and no more", broken(out) == ["world1@1"], broken(out))
    graphs = re.findall(r"the graph of (world1@\d) is captured", out)
    claim("each epoch captured a graph of its own", graphs == ["world1@1", "world1@2"], graphs)
    tokens, wrong, captured, ran = numbers(
        r"(\d+) tokens, (\d+) wrong; (\d+) graphs were captured, and ran (\d+) times", out)
    claim("every token came, and is right", tokens >= 300 and wrong == 0, (tokens, wrong))
    claim("the graphs made all of them, and the last word", captured == 2 and ran == tokens + 1, (captured, ran))
    after = numbers(r"kill -9 \d+, rank 1, after (\d+) tokens", out)[0]
    claim("it was killed on the way, and the tokens went on", 100 <= after < tokens and "the next token came" in out, after)


def roll_out(out):
    """MANYWORLDS_ROLL_OUT_SECONDS=60 is the whole of it."""
    seconds = int(ARGUMENTS[1])
    asked, answered, failed, came, right, wrong, again = numbers(
        r"(\d+) requests, (\d+) answered, (\d+) failed; (\d+) of (\d+) tokens came, (\d+) wrong or twice; "
        r"(\d+) requests went on with another worker", out)
    claim("every request was answered", asked == answered >= 24 and failed == 0, (asked, answered, failed))
    claim("every token came once, and is right", came == right and wrong == 0, (came, right, wrong))
    claim("no stream broke, and none was resumed", again == 0, again)
    told = re.findall(r"kill -TERM (\d+)", out)
    claim("a worker was told to end each second", len(told) == len(set(told)) == seconds, told)
    claim("all of them ended in order", f"{seconds + 3} workers ended in order" in out)
    claim("each of the new ones came", len(set(re.findall(r"worker (\d+) has come", out))) == seconds + 3)


def dispatch(out):
    if "--roll-out" in ARGUMENTS:
        return roll_out(out)
    gone = re.findall(r"worker (\d+) is gone", out)
    killed = re.findall(r"kill -9 (\d+)", out)
    claim("the killed worker is gone, and no other", gone == killed and len(gone) == 1, gone)
    claim("all four were there", len(set(re.findall(r"worker (\d+) has come", out))) == 4)
    asked, answered, failed, came, right, wrong, again = numbers(
        r"(\d+) requests, (\d+) answered, (\d+) failed; (\d+) of (\d+) tokens came, (\d+) wrong or twice; "
        r"(\d+) requests went on with another worker", out)
    claim("every request was answered", asked == answered >= 90 and failed == 0)
    claim("every token came once, and is right", came == right and wrong == 0)
    claim("what the killed one had begun went on elsewhere", again > 0, again)
    given = dict(re.findall(r"worker (\d+): (\d+) tokens", out))
    claim("the one that came late worked too", len(given) == 3 and min(map(int, given.values())) >= 500, given)


def resnet(out):
    claim("only the world of the killed worker broke", broken(out) == ["world1@1"], broken(out))
    claim("its image went to the other worker", out.count("goes to another worker") == 1)
    claim("every image has its class", "16 images, 0 not answered once, 0 of another class" in out)
    found = set(re.findall(r"class (\d)", out))
    claim("they are of several classes", len(found) >= 3, found)


def by_hand():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1] % 20000 + 10000)
    terminals = [["1,0", "2,0"], ["1,1"], ["1,2"], ["2,1"], ["2,2"]]
    started = []
    for memberships in terminals:
        info = [word for m in memberships for word in ("--worldinfo", m)]
        started.append(subprocess.Popen(
            [PROGRAM, *info, "--port", port, "--pause", "0.001", "--print-every", "50"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    for p in started:
        out, err = p.communicate(timeout=60)
        claim("it ends with 0 and no error", p.returncode == 0 and err == "" and "error" not in out, out + err)
    claim_nothing_is_left()


def by_launcher():
    """Nothing on its command line says what its place is."""
    size, words = (2, ["--requests", "50"]) if NAME == "kv_transfer" else (5, ["--pause", "0.001", "--print-every", "50"])
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    job = {**os.environ, "WORLD_SIZE": str(size), "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    started = [subprocess.Popen([PROGRAM, *words], env={**job, "RANK": str(rank)}, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True) for rank in range(size)]
    for p in started:
        out, err = p.communicate(timeout=60)
        claim("it ends with 0 and no error", p.returncode == 0 and err == "" and "error" not in out, out + err)
    done = subprocess.run([PROGRAM], env={**job, "RANK": "0", "WORLD_SIZE": "3"}, capture_output=True, text=True, timeout=20)
    claim("another number of processes is refused, and both numbers are told",
          done.returncode == 1 and f"it takes {size} processes, and the launcher has started 3" in done.stderr, done.stderr)
    claim_nothing_is_left()


if "--by-hand" in ARGUMENTS:
    by_hand()
elif "--by-launcher" in ARGUMENTS:
    by_launcher()
else:
    globals()["collective" if NAME in COLLECTIVES else NAME](run())
sys.exit(bool(failures))
