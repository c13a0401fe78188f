#!/usr/bin/env python3
"""The HTTP front streams answers, passes on that a client hangs up, survives workers that die, and ends in order.

usage: front_test.py PROGRAM
"""
import http.client
import re
import signal
import subprocess
import sys
import threading
import time

if len(sys.argv) == 1:
    print("skipped: cpp-httplib is missing (Debian: libcpp-httplib-dev), so there is no example http_front")
    sys.exit(77)

from watched_program import PROGRAM, claim, claim_nothing_is_left, failures

LIMIT = 30  # seconds for each wait


class Process:
    """A program. Its lines are kept."""

    def __init__(self, *arguments):
        self.lines = []
        self.changed = threading.Condition()
        self.process = subprocess.Popen([PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            print(f"[{self.process.pid}] {line}", end="")
            with self.changed:
                self.lines.append(line.strip())
                self.changed.notify_all()

    def expect(self, pattern, times=1):
        """The last of `times` lines that match; None if they do not come."""
        def found():
            return [m for m in (re.search(pattern, line) for line in self.lines) if m]
        with self.changed:
            self.changed.wait_for(lambda: len(found()) >= times, LIMIT)
            return found()[times - 1] if len(found()) >= times else None

    def ends_with(self, status):
        try:
            code = self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = "no end"
        self.reader.join(LIMIT)
        claim("it ends in order", code == status, code)


def ask(port, prompt, tokens, pause_ms):
    """The response to a request. Its events are still to be read."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)
    connection.request("GET", f"/generate?prompt={prompt}&tokens={tokens}&pause_ms={pause_ms}")
    response = connection.getresponse()
    # It would be closed with the connection that nothing else refers to.
    response.keeps = connection
    return response


def events(response, at_most=None):
    """(event, data) as they come."""
    name = ""
    told = []
    while at_most is None or len(told) < at_most:
        line = response.readline().decode().rstrip("\n")
        if not line:
            if response.isclosed():
                break
            continue
        field, _, value = line.partition(": ")
        if field.rstrip(":") == "event":
            name = value
        if field.rstrip(":") == "data":
            told.append((name, value))
            name = ""
    return told


def whole(prompt, tokens):
    return [("", f"{prompt}-{i}") for i in range(tokens)] + [("end", "")]


def start():
    front = Process("--store", "127.0.0.1:0")
    store = front.expect(r"store (\S+)")
    port = front.expect(r"http://127.0.0.1:(\d+)")
    if not store or not port:
        claim("the front says where it is", False, front.lines)
        front.process.kill()
        sys.exit(1)
    return front, store[1], int(port[1])


def main():
    front, store, port = start()
    workers = [Process("--role", "worker", "--store", store) for _ in range(2)]
    front.expect("a worker has come", 2)

    response = ask(port, "first", 20, 5)
    claim("it is a stream of events", response.getheader("Content-Type") == "text/event-stream")
    got = events(response)
    claim("all tokens come in their order, then the end", got == whole("first", 20), got)

    answers = {}
    def read(prompt):
        answers[prompt] = events(ask(port, prompt, 200, 0))
    readers = [threading.Thread(target=read, args=(f"side{i}",)) for i in range(4)]
    for each in readers:
        each.start()
    for each in readers:
        each.join(LIMIT)
    claim("answers side by side are whole", all(answers.get(f"side{i}") == whole(f"side{i}", 200) for i in range(4)))

    response = ask(port, "gone", 100000, 10)
    claim("it begins", len(events(response, 3)) == 3)
    response.close()
    response.keeps.close()
    deadline = time.monotonic() + LIMIT
    def cancelled():
        return [w for w in workers if any(line.startswith("cancelled gone") for line in w.lines)]
    while not cancelled() and time.monotonic() < deadline:
        time.sleep(0.01)
    claim("a client that hangs up ends the worker's handler", len(cancelled()) == 1)

    response = ask(port, "lost", 100000, 10)
    claim("it begins", len(events(response, 3)) == 3)
    victim = next(w for w in workers if "begun lost" in w.lines)
    victim.process.kill()
    got = events(response)
    claim("a worker that dies ends its answer by an error that names it",
          got and got[-1][0] == "error" and "died" in got[-1][1] and str(victim.process.pid) in got[-1][1], got[-1:])
    claim("the other answers", events(ask(port, "after", 5, 0)) == whole("after", 5))

    late = Process("--role", "worker", "--store", store)
    front.expect("a worker has come", 3)
    survivor = next(w for w in workers if w is not victim)
    responses = [ask(port, f"open{i}", 60, 20) for i in range(4)]
    for each in responses:
        events(each, 1)
    survivor.process.send_signal(signal.SIGTERM)
    got = [events(r) for r in responses]
    claim("a worker that is told to end breaks no answer",
          all(answer == whole(f"open{i}", 60)[1:] for i, answer in enumerate(got)), [g[-1:] for g in got])
    survivor.ends_with(0)

    response = ask(port, "last", 60, 20)
    events(response, 1)
    front.process.send_signal(signal.SIGTERM)
    got = events(response)
    claim("a front that is told to end ends what is open", got == whole("last", 60)[1:], got[-1:])
    front.ends_with(0)
    late.process.send_signal(signal.SIGTERM)
    late.ends_with(0)
    claim("what it told is no error", not any("http_front:" in line for line in front.lines))
    victim.process.wait(LIMIT)
    claim_nothing_is_left()


main()
sys.exit(bool(failures))
