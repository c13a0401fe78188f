#!/usr/bin/env python3
"""Roles that are sessions, as processes: workers and controllers are killed and stopped.

usage: session_jobs_test.py MWGRAPH SESSION_ROLE_USER
"""
import os
import signal

from one_host import LIMIT, ROLE_USER, Job, gone, run, until


def without(pids, instance):
    return {name: pid for name, pid in pids.items() if name != instance}


def graph(name, more=""):
    return f"""\
name = "{name}"
[role.tp]
run = ["{ROLE_USER}"]
kind = "spmd"
count = 4
ready = "told"
drain = "5s"
grace = "1s"
restart = {{ tries = 10, per = "1m" }}
{more}"""


def a_role_is_a_session_that_keeps_its_losses_to_itself():
    """graph: over two agents, a worker is killed, stopped, and all of them at once; nothing else starts again."""
    job = Job("session", graph("session", '[[place]]\nrule = "spread"\nroles = ["tp"]\n'), more=["--nodes", "2"])
    until(lambda: os.path.exists("jobs/session/job.json"), "the job cannot be found")
    agent = job.agent("b")
    before = job.until_ready(4)
    places = {each["instance"]: each["node"] for each in job.status()["instances"]}
    assert sorted(places.values()) == ["b", "b", "here", "here"], places
    job.log_says("tp.0", "the sums are right")
    os.kill(before["tp.2"], signal.SIGKILL)
    after = job.until_ready(4, {"tp.2": before["tp.2"]})
    assert without(after, "tp.2") == without(before, "tp.2")
    job.log_says("tp.0", "the sums are right", 2)
    assert "a call failed" in job.ask("logs", "tp.0").stdout

    # One that stands still ends only by force.
    os.kill(after["tp.1"], signal.SIGSTOP)
    job.log_says("tp.0", "the sums are right", 3)
    again = job.until_ready(4, {"tp.1": after["tp.1"]})
    assert again["tp.0"] == before["tp.0"] and again["tp.3"] == before["tp.3"]
    assert "its session has lost it" in job.ask("events").stdout, job.ask("events").stdout

    for worker in ("tp.1", "tp.2", "tp.3"):
        os.kill(again[worker], signal.SIGKILL)
    job.log_says("tp.0", "the sums are right", 4)
    assert job.pids()["tp.0"] == before["tp.0"]
    assert "a wrong sum" not in job.ask("logs", "tp.0").stdout
    # Those that are started again are where placement had them.
    assert places == {each["instance"]: each["node"] for each in job.status()["instances"]}
    assert job.end() == 0 == agent.wait(LIMIT)
    job.log_says("tp.1", "worked")
    gone([*before.values(), *after.values(), *again.values()])


def a_sessions_workers_stay_when_their_controller_dies():
    """graph B49: its own death: it is started again, and takes its workers back."""
    job = Job("adopts", graph("adopts", '[role.forgetful]\nrun = ["/bin/sleep", "1000"]\n'))
    before = job.until_ready(5)
    for controllers in (1, 2):
        job.log_says("tp.0", "the sums are right", controllers)
        os.kill(job.pids()["tp.0"], signal.SIGKILL)
        pids = job.until_ready(5, {"tp.0": before["tp.0"]})
        assert without(pids, "tp.0") == without(before, "tp.0")
        before = pids
    job.log_says("tp.0", "the sums are right", 3)
    # A worker that stands still does not keep the next controller from its session.
    os.kill(before["tp.3"], signal.SIGSTOP)
    os.kill(before["tp.0"], signal.SIGKILL)
    pids = job.until_ready(5, {"tp.0": before["tp.0"], "tp.3": before["tp.3"]})
    job.log_says("tp.0", "the sums are right", 4)
    assert pids["tp.1"] == before["tp.1"] and pids["tp.2"] == before["tp.2"]
    assert job.end() == 0
    gone([*before.values(), *pids.values()])


def a_worker_that_is_lost_while_others_are_awaited_comes_again():
    """graph G-e: its controller, which begins the session, is not charged."""
    late = f'["/bin/sh", "-c", "test $ROLE_RANK = 3 && sleep 2; exec {ROLE_USER}"]'
    job = Job("begins", graph("begins").replace(f'["{ROLE_USER}"]', late))
    early = job.until_ready(2)
    assert set(early) == {"tp.1", "tp.2"}, early
    os.kill(early["tp.1"], signal.SIGKILL)
    pids = job.until_ready(4, {"tp.1": early["tp.1"]})
    assert pids["tp.2"] == early["tp.2"]
    job.log_says("tp.0", "the sums are right", 1)
    (controller,) = [i for i in job.status()["instances"] if i["instance"] == "tp.0"]
    assert controller["incarnation"] == 1 and controller["failures"] == 0, controller
    assert job.end() == 0


def a_session_that_is_closed_ends_its_job_in_order():
    """graph G-f: workers end when they are done, also late, and none of them counts as lost."""
    text = graph("closes", "driver = true\n").replace(f'["{ROLE_USER}"]', f'["{ROLE_USER}", "closes"]')
    job = Job("closes", text)
    assert job.process.wait(LIMIT) == 0, job.ask("events").stdout
    assert "the sum is 303" in job.ask("logs", "tp.0").stdout
    for instance in job.status()["instances"]:
        assert instance["incarnation"] == 1 and instance["failures"] == 0, instance
        assert instance["last_code"] == 0, instance
    for worker in ("tp.1", "tp.2", "tp.3"):
        job.log_says(worker, "worked")


run([a_role_is_a_session_that_keeps_its_losses_to_itself, a_sessions_workers_stay_when_their_controller_dies,
     a_worker_that_is_lost_while_others_are_awaited_comes_again, a_session_that_is_closed_ends_its_job_in_order])
