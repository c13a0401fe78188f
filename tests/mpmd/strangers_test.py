#!/usr/bin/env python3
"""A job on this machine, the ports of which strangers reach.

usage: strangers_test.py MWGRAPH ROLE_USER
"""
import concurrent.futures
import json
import os
import subprocess

from one_host import LIMIT, MWGRAPH, Job, gone, graph, parent_of, run, until
from strangers import Recorder, connected, garbage, listening_ports, say


def address_of(text):
    host, _, port = text.rpartition(":")
    return host, int(port)


class Target:
    """A job that runs, and where its programs listen."""

    def __init__(self):
        self.job = Job("target", graph("target"))
        self.pids = self.job.until_ready(3)
        with open("jobs/target/job.json", encoding="utf-8") as file:
            found = json.load(file)
        self.secret = found["secret_file"]
        self.store = address_of(found["store"])
        (self.master,) = self.job.children("master")
        self.agent = parent_of(self.pids["decode.0"])
        workers = [("127.0.0.1", port) for pid in self.pids.values() for port in listening_ports(pid)]
        others = [("127.0.0.1", port) for pid in (self.master, self.agent) for port in listening_ports(pid)]
        assert len(others) == 2 and len(workers) == 3, (others, workers)
        self.all = [self.store, *others, *workers]

    def is_undisturbed(self):
        """The same processes run, under the same master, and their edges count on."""
        status = self.job.status()
        assert status["stage"] == "running" and status["term"] == 1, status
        assert self.job.pids() == self.pids
        assert all(each["incarnation"] == 1 and not each["failures"] for each in status["instances"]), status
        assert not any("node here: its agent is gone" in each["what"] for each in status["events"]), status
        count = self.job.count("decode.0")
        until(lambda: self.job.count("decode.0") > count, "its facts are no longer recorded")

    def begin(self, words, *more, store=None):
        """Starts mwgraph with the job's store, or what stands before it."""
        line = [MWGRAPH, words[0], "target", "--store", "{}:{}".format(*(store or self.store)), *words[1:], *more]
        return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def at_once(attack, *arguments):
    with concurrent.futures.ThreadPoolExecutor(16) as attackers:
        list(attackers.map(attack, *arguments))


def what_is_no_word_of_ours_is_refused(target):
    def all_of_it(number, address):
        for text in garbage(number):
            say(address, [text])
    at_once(all_of_it, range(len(target.all)), target.all)


def what_is_begun_and_left_open_holds_nothing_up(target, silent):
    for address in target.all:
        for begun in (b"", b"MWSTORE\1", b"\x30\0\0\0"):
            silent.append(connected(address))
            silent[-1].sendall(begun)


def without_the_secret_nothing_is_told(target):
    """By programs that speak the protocol: mwgraph itself, and an agent."""
    with open("wrong", "w", encoding="ascii") as file:
        file.write("0" * 64 + "\n")
    os.chmod("wrong", 0o600)
    # Without a secret they try again for seconds, and an agent does so until it is told to end.
    agent = ["agent", "--node", "stranger"]
    tries = [(["status"], "--insecure"), (["stop"], "--insecure"), (agent, "--insecure"),
             (agent, "--secret-file", "wrong")]
    still_trying = [target.begin(*words) for words in tries]
    for command in ("status", "stop"):
        stranger = target.begin([command], "--secret-file", "wrong")
        said = stranger.communicate(timeout=LIMIT)[0]
        assert stranger.returncode == 1 and "have different secrets" in said, said
    for stranger in still_trying:
        stranger.kill()
        said = stranger.communicate(timeout=LIMIT)[0]
        assert stranger.returncode != 0 and "stage" not in said, said
    assert [each["name"] for each in target.job.status()["nodes"]] == ["here"]


def what_was_said_once_is_refused_when_it_is_repeated(target):
    """A client's order to stop, as it was recorded on its way and never arrived."""
    word = b"target/stop"
    recorder = Recorder(target.store, held=word)
    with target.begin(["stop"], "--secret-file", target.secret, store=recorder.address) as client:
        said = until(lambda: next((each for each in recorder.said if each and word in each[-1]), None),
                     "the order was never sent")
        client.kill()
    recorder.close()
    def repeat(address):
        for parts in (said, [b"".join(said)], said[-1:]):
            say(address, parts)
    at_once(repeat, target.all)


def a_job_that_strangers_reach_ends_in_order():
    """graph B75: the meeting store, the master, the agent and the workloads refuse strangers, and nothing stops."""
    target, silent = Target(), []
    try:
        what_is_begun_and_left_open_holds_nothing_up(target, silent)
        for attack in (what_is_no_word_of_ours_is_refused, without_the_secret_nothing_is_told,
                       what_was_said_once_is_refused_when_it_is_repeated):
            attack(target)
            target.is_undisturbed()
    finally:
        for each in silent:
            each.close()
    # The order that was recorded does stop the job, if it is said by one that knows the secret.
    recorder = Recorder(target.store)
    assert target.begin(["stop"], "--secret-file", target.secret, store=recorder.address).wait(LIMIT) == 0
    assert target.job.process.wait(LIMIT) == 0
    recorder.close()
    gone(target.pids.values())
    status = json.loads(target.job.ask("status", "--json").stdout)
    assert status["stage"] == "stopped" and status["why"] == "mwgraph stop", status
    assert all(each["incarnation"] == 1 for each in status["instances"]), status


run([a_job_that_strangers_reach_ends_in_order])
