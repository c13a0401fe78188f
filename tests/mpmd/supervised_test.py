#!/usr/bin/env python3
"""Jobs of `mwgraph run` and `start`, and what callers, disks and those who ask do to them.

usage: supervised_test.py MWGRAPH ROLE_USER
"""
import os
import signal

from one_host import LIMIT, Job, gone, graph, run, until

SHORT = 'name = "{}"\n[role.main]\nrun = ["/bin/sh", "-c", "exit {}"]\nrestart = {{ when = "never" }}\ndriver = true\n'


def a_job_goes_on_when_the_reader_of_its_output_has_gone():
    """graph G-c."""
    reader, writer = os.pipe()
    job = Job("unread", graph("unread"), stdout=writer)
    os.close(writer)
    pids = job.until_ready(3)
    os.close(reader)
    os.kill(pids["decode.0"], 9)
    job.until_ready(3, {"decode.0": pids["decode.0"]})
    assert job.end() == 0


def a_job_whose_caller_has_closed_its_streams_keeps_its_name():
    closed = ("/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh")
    job = Job("closed", graph("closed"), how="start", through=closed)
    assert job.process.wait(LIMIT) == 0
    pids = job.until_ready(3)
    assert Job("closed", graph("closed"), how="start").process.wait(LIMIT) == 1
    assert job.until_ready(3) == pids
    assert job.ask("stop").returncode == 0
    assert job.ask("wait").returncode == 0
    gone(pids.values())


def what_was_waited_for_may_be_started_again_at_once():
    for code in 3, 4, 5:
        job = Job("again", SHORT.format("again", code), how="start")
        assert job.process.wait(LIMIT) == 0
        assert job.ask("wait").returncode == code


def has_stopped(pid):
    """Each thread stops by itself, and only behind the system call that it is in."""
    def state(thread):
        try:
            with open(f"/proc/{pid}/task/{thread}/stat", encoding="ascii") as file:
                return file.read().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return "T"  # It has ended.
    return all(state(thread) == "T" for thread in os.listdir(f"/proc/{pid}/task"))


def stops_without_master(name, damage, said):
    job = Job(name, graph(name), how="start")
    assert job.process.wait(LIMIT) == 0
    pids = job.until_ready(3)
    context = f"jobs/{name}/context"

    # By its journal the next master would mend what this one was about to write.
    (master,) = until(lambda: job.children("master"), "there is no master")
    os.kill(master, signal.SIGSTOP)
    # A write that was under way would mend the damage.
    until(lambda: has_stopped(master), "the master does not stop")
    damage(context)
    os.remove(context + "-journal")
    os.kill(master, signal.SIGKILL)

    def log():
        with open(f"jobs/{name}/log", encoding="utf-8") as file:
            return file.read()
    # Its instances run on until it is asked to end.
    until(lambda: "no master can lead" in log(), log)
    assert said in log(), log()
    assert job.pids() == pids
    assert job.ask("stop").returncode == 0
    assert job.ask("wait").returncode == 1
    gone(pids.values())


def a_job_of_which_the_context_is_damaged_can_be_stopped():
    """graph G-c."""
    def spoil(path):
        with open(path, "r+b") as file:
            file.write(b"no database")
    stops_without_master("damaged", spoil, "context")


def a_job_of_which_the_context_is_lost_is_not_begun_again():
    """graph G-a: its instances would be started twice."""
    stops_without_master("lost", os.remove, "was announced")


def what_a_machine_has_is_read_before_anything_starts():
    with open("wrong.json", "w", encoding="ascii") as file:
        file.write("{")
    for devices in "none.json", "wrong.json":
        job = Job("devices", graph("devices"), more=("--devices", devices))
        assert job.process.wait(LIMIT) == 2, devices


def a_job_that_was_killed_is_not_waited_for():
    job = Job("killed", graph("killed"))
    pids = job.until_ready(3)
    job.process.kill()
    job.process.wait(LIMIT)
    gone(pids.values())
    for command in "status", "wait", "stop":
        done = job.ask(command)
        assert done.returncode == 2 and "was killed" in done.stderr, (command, done)
    # Its name is free.
    job = Job("killed", SHORT.format("killed", 7))
    assert job.process.wait(LIMIT) == 7


run([claim for name, claim in globals().items() if callable(claim) and name.startswith(("a_", "what_"))])
