#!/usr/bin/env python3
"""A job of two nodes with two masters, its context and its meeting in etcd, all of which are hurt.

usage: masters_test.py MWGRAPH ROLE_USER
"""
import os
import signal
import sys
import tempfile
import time

import remains
from several_hosts import LIMIT, Job, goal, lives, until
from one_etcd import Etcd, ThreeEtcds  # noqa: E402

# How long etcd is away; the time in the long run.
AWAY = 30 if os.environ.get("MANYWORLDS_TEST_LONG") else 4

DRIVER = """\
[role.main]
run = ["/bin/sh", "-c", "while [ ! -e ends ]; do sleep 0.05; done; exit 7"]
driver = true
restart = { when = "never" }
"""


def a_standby_leads_when_the_leader_dies(job):
    """graph B56, B67, G-a, G-c: the leader's death is seen by its standby, and nothing is started again."""
    before, longest = job.until_ready(), 0.0
    for _ in range(2):
        term = job.status()["term"]
        assert all(each.poll() is None for each in job.masters), "one that stands by does not end"
        began = time.monotonic()
        job.kill_leader()
        job.until_term_above(term)
        longest = max(longest, time.monotonic() - began)
        assert job.until_ready() == before
    return goal("a standby led after", longest, 1)


def an_old_master_that_is_resumed_changes_nothing(job):
    """graph B60, B62, G-a to G-c: agents work on without it. It hears of a death when it goes on, and gives up its
    term: its write is refused, or the answer to one that was under way comes too late. Of that death nothing is
    started twice."""
    before, numbers = job.until_ready(), job.incarnations()
    term, old = job.status()["term"], job.masters[job.leads]
    old.send_signal(signal.SIGSTOP)
    job.leads = 1 - job.leads
    # Its agents tell it so, and it will conclude from that what its successor has concluded by then.
    os.kill(before["decode.1"], signal.SIGKILL)
    job.until_term_above(term)
    assert lives(before["decode.0"]) and lives(before["prefill.0"])
    after = job.until_ready({"decode.1": before["decode.1"]})
    old.send_signal(signal.SIGCONT)
    # A write that was under way has an answer that came too late; any other one is refused.
    ends = [f"term {term} has ended", f"another master has taken term {term + 1}",
            f"another master has term {term + 1}", "is unreachable"]
    lines = lambda: [line for line in job.said().splitlines() if f"[{old.pid}]" in line]  # noqa: E731
    until(lambda: any(end in line for line in lines() for end in ends), job.said)
    # What it had been about to tell when it was stopped is told over.
    now = {**numbers, "decode.1": numbers["decode.1"] + 1}
    until(lambda: job.incarnations() == now, job.said)
    # It stands by like any other one, and leads when it is its turn.
    term = job.status()["term"]
    job.kill_leader()
    job.until_term_above(term)
    assert old.poll() is None
    assert job.until_ready() == after == {**before, "decode.1": after["decode.1"]}
    assert job.incarnations() == {**numbers, "decode.1": numbers["decode.1"] + 1}


def a_lease_that_is_lost_is_no_death(job):
    """graph B66: a master that lives has the seat again by another lease, nothing is started again for that, and a death
    that follows is handled."""
    before, numbers = job.until_ready(), job.incarnations()
    term, (leader, lease) = job.status()["term"], until(job.seat, "no master has the seat")
    job.etcd_says("lease/revoke", ID=lease)
    until(lambda: (job.seat() or ("", "0"))[1] not in ("0", lease), "no master has the seat again")
    assert job.until_ready() == before and job.incarnations() == numbers
    os.kill(before["decode.1"], signal.SIGKILL)
    after = job.until_ready({"decode.1": before["decode.1"]})
    assert after == {**before, "decode.1": after["decode.1"]}
    assert job.incarnations() == {**numbers, "decode.1": numbers["decode.1"] + 1}
    return f"seat {leader} -> {job.seat()[0]}, term {term} -> {job.status()['term']}"


def a_master_of_another_graph_is_refused_and_takes_nothing(job):
    """graph B11, G-a: two jobs of one name. It does not stand by, and never takes a term: nothing is disturbed."""
    before, term = job.until_ready(), job.status()["term"]
    with open("other.toml", "w", encoding="utf-8") as file:
        file.write('name = "kept"\n[role.only]\nrun = ["true"]\n')
    done = job.ask("master", "--context", f"etcd://{job.etcd.endpoint}", "--graph", os.path.abspath("other.toml"))
    assert done.returncode == 2 and "of another graph: give this one another name" in done.stderr, done
    assert job.status()["term"] == term and job.until_ready() == before


def without_etcd_everything_runs_on(job):
    """graph B65: edges carry on, and a death while etcd is away is handled when it is back."""
    before = job.until_ready()
    job.etcd.process.send_signal(signal.SIGSTOP)
    for lost in (None, "decode.0"):
        if lost:
            os.kill(before[lost], signal.SIGKILL)
        rounds = job.rounds("decode.1")
        time.sleep(AWAY / 2)
        until(lambda: job.rounds("decode.1") > rounds, "the edge of decode.1 stands still")
    assert lives(before["decode.1"]) and lives(before["prefill.0"])
    job.etcd.process.send_signal(signal.SIGCONT)
    after = job.until_ready({"decode.0": before["decode.0"]})
    assert after["decode.1"] == before["decode.1"] and after["prefill.0"] == before["prefill.0"]


def what_runs_is_not_forgotten(job):
    before = job.until_ready()
    done = job.ask("forget", secret=False)
    assert done.returncode == 1 and "is not over" in done.stderr, done
    assert job.until_ready() == before


def the_job_ends_once(job):
    """graph B11, B64, G-f: one result, told by all, and nothing is left."""
    job.stop_in_order()
    remains.need_nothing()


def what_is_over_can_be_forgotten(job):
    """graph G-f: etcd keeps the end of a job for those who ask, until it is told to forget the job."""
    assert job.ask("wait").returncode == 0, "its end is there for those who ask late"
    assert job.keys()
    done = job.ask("forget", secret=False)
    assert done.returncode == 0 and "erased" in done.stdout, done
    assert not job.keys()
    # Again is no error, and the name is free.
    assert job.ask("forget", secret=False).returncode == 0


def a_lease_that_is_lost_as_the_driver_ends_changes_no_result(job):
    """graph B66: nothing is started again, and the job ends once, with the code of its driver."""
    again = Job(job.etcd, more=DRIVER)
    try:
        again.until_ready()
        numbers, waits = again.incarnations(), again.start(0, "wait")
        with open("ends", "w", encoding="ascii"):
            pass
        # The driver looks for that every 50 ms.
        revoked = []
        for _ in range(5):
            revoked.append(again.revoke_seat())
            time.sleep(0.02)
        assert any(revoked), "no master had the seat"
        assert waits.wait(LIMIT) == 7
        codes = [one.wait(LIMIT) for one in (*again.masters, *again.agents.values())]
        assert codes == [0] * 4, codes
        assert again.ask("wait").returncode == 7
        status = again.status()
        assert status["stage"] == "stopped" and status["job_restarts"] == 0, status
        assert again.incarnations() == numbers
        ends = [each["what"] for each in status["events"] if each["what"].startswith("the job is stopped")]
        assert len(ends) == 1, status["events"]
        assert again.ask("forget", secret=False).returncode == 0
        return f"its leases were revoked {sum(revoked)} times, and its term was {status['term']}"
    finally:
        again.end()


def a_standby_begins_no_job_that_was_forgotten(job):
    """What was erased while it stood by looks like a job that has yet to begin."""
    again = Job(job.etcd)
    try:
        again.until_ready()
        # Until it stands by, and knows that there is a job.
        time.sleep(1)
        again.erase_all()
        assert again.masters[1].wait(30) == 0, again.said()
        assert not again.has_context()
    finally:
        again.end()


def an_etcd_of_three_may_lose_a_member(job):
    """graph B65: the one that all ask first is killed; a death and that of all masters are handled as ever."""
    three = ThreeEtcds()
    again = None
    try:
        again = Job(three)
        before = again.until_ready()
        three.members[0].process.kill()
        os.kill(before["decode.0"], signal.SIGKILL)
        after = again.until_ready({"decode.0": before["decode.0"]})
        assert {**after, "decode.0": 0} == {**before, "decode.0": 0}
        # Another one may lead since, as etcd elected while a lease ran out.
        for one in again.masters:
            one.kill()
            one.wait(LIMIT)
        term = again.status()["term"]
        again.masters = [again.master(0), again.master(1)]
        again.until_term_above(term)
        assert again.until_ready() == after
        again.stop_in_order()
    finally:
        if again:
            again.end()
        three.end()


def main():
    try:
        etcd = Etcd()
    except FileNotFoundError:
        print("skipped: etcd is not installed")
        return 77
    claims = [a_standby_leads_when_the_leader_dies, an_old_master_that_is_resumed_changes_nothing,
              a_master_of_another_graph_is_refused_and_takes_nothing, a_lease_that_is_lost_is_no_death, without_etcd_everything_runs_on, what_runs_is_not_forgotten, the_job_ends_once,
              what_is_over_can_be_forgotten, a_lease_that_is_lost_as_the_driver_ends_changes_no_result,
              a_standby_begins_no_job_that_was_forgotten]
    if os.environ.get("MANYWORLDS_TEST_LONG"):
        claims.append(an_etcd_of_three_may_lose_a_member)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        remains.begin(folder)
        job = None
        try:
            job = Job(etcd)
            for claim in claims:
                began = time.monotonic()
                said = claim(job)
                print(f"{claim.__name__.replace('_', ' ')}: {time.monotonic() - began:.1f} s {said or ''}", flush=True)
        except BaseException:
            print(Job.said(), file=sys.stderr)
            raise
        finally:
            if job:
                job.end()
            etcd.end()
            remains.end_what_is_left(os.path.realpath(folder))
    return 0


sys.exit(main())
