"""Every question of mwbench is asked in small: smoke_test.py MWBENCH.

Prints doctest's summary line, by which tests/tally.py counts. Speeds are not judged here, only that
each answer is there, plausible and in the fields that were promised."""

import json
import os
import subprocess
import sys
import tempfile

LIMIT_S = 60


def ask(*arguments):
    """The rows of one run, without the one that tells the machine."""
    command = [sys.argv[1], *arguments, "--json", "--limit", str(LIMIT_S)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S + 10)
    assert run.returncode == 0, f"{command} ended with {run.returncode}: {run.stderr}"
    rows = [json.loads(line) for line in run.stdout.splitlines()]
    assert rows[0]["bench"] == "machine" and rows[0]["kernel"], rows
    return rows[1:]


def check_positive(row, *names):
    for name in names:
        assert row[name] > 0, f"{name} in {row}"


def messages_are_measured_beside_raw_limits(engine, transport, *options):
    rows = ask("p2p", "--sizes", "8,64K,1M", "--rounds", "1", "--pings", "20", "--idle-worlds", "3",
               "--engine", engine, "--transport", transport, *options)
    assert [row["size"] for row in rows] == [8, 65536, 1048576], rows
    for row in rows:
        check_positive(row, "p50_us", "p99_us", "limit_us", "ratio", "gb_s", "limit_gb_s")
        assert row["transport"] == transport and row["p50_us"] <= row["p99_us"], row
        assert row["memory"] == ("shared" if "--shared-buffers" in options else "plain"), row
        assert row["views"] == (7 if "--views" in options else 1), row


def pairs_at_once_are_told_by_the_slower_one():
    rows = ask("pairs", "--pairs", "2", "--sizes", "8,64K", "--seconds", "0.1")
    assert [row["size"] for row in rows] == [8, 65536], rows
    for row in rows:
        check_positive(row, "mean_us", "p50_us", "p99_us", "round_trips")


def many_worlds_are_told_beside_one():
    for senders in (1, 2):
        rows = ask("worlds", "--worlds", "16", "--senders", str(senders), "--sizes", "4,64K", "--rounds", "1")
        assert [row["size"] for row in rows] == [4, 65536], rows
        for row in rows:
            check_positive(row, "one_us", "many_us", "one_gb_s", "many_gb_s", "ratio", *["raw_us"][:2 - senders])


def collectives_are_checked_and_told_in_the_terms_of_nccl_tests():
    rows = ask("collectives", "--members", "3", "--sizes", "8,64K", "--seconds", "0.01")
    assert len(rows) == 17 and len({row["kind"] for row in rows}) == 9, rows
    for row in rows:
        check_positive(row, "time_us", "p50_us", "p99_us")
        assert row["members"] == 3 and row["p50_us"] <= row["p99_us"], row
        if row["size"] == 65536:
            check_positive(row, "count", "algbw_gb_s", "busbw_gb_s")
        if row["kind"] == "all_reduce" and row["size"] == 65536:
            assert (row["count"], row["type"], row["op"]) == (16384, "float32", "sum"), row


def beside_nobody(program, *options):
    """What a comparison in `peers` says where no peer is installed."""
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers", program)
    with tempfile.TemporaryDirectory() as empty:
        figures = os.path.join(empty, "figures.json")
        run = subprocess.run(
            [sys.executable, script, os.path.abspath(sys.argv[1]), "--json", figures, "--build",
             empty, *options],
            capture_output=True, text=True, timeout=LIMIT_S, env=os.environ | {"PATH": empty})
        assert run.returncode == 0, run.stderr
        with open(figures) as lines:
            about, *rows = map(json.loads, lines)
    for package in ("openmpi-bin", "mpich", "python3-torch", "--multiworld"):
        assert any(package in note for note in about["notes"]), about
    return about, rows


def a_peer_that_is_missing_is_named_with_its_package(question, package, *options):
    about, rows = beside_nobody("compare.py", "--question", question, "--rounds", "1", *options)
    assert any(package in note for note in about["notes"]), about
    assert [(row["who"], row["size"]) for row in rows] == [
        ("manyworlds", 8), ("manyworlds", 65536)], rows


def a_fault_is_told_beside_what_the_peers_make_of_it():
    _, (row,) = beside_nobody("fail.py", "--kills", "1", "--stops", "0")
    assert (row["who"], row["fault"], row["noticed"]) == ("manyworlds", "kill", 1), row
    check_positive(row, "ms")


def a_killed_peer_is_noticed_and_replaced():
    (row,) = ask("fail", "--fault", "kill", "--repeat", "2")
    check_positive(row, "detect_ms", "reform_ms", "healthy_max_gap_ms", "quiet_max_gap_ms")
    assert row["repeats"] == 2, row


def a_stopped_peer_is_suspect_before_its_world_breaks():
    (row,) = ask("fail", "--fault", "stop", "--repeat", "1", "--alone")
    # Silence counts from the last beat, which may have come a heartbeat before the stop.
    assert 700 < row["suspect_ms"] < row["broken_ms"], row


def survivors_of_a_killed_member_shrink():
    (row,) = ask("shrink", "--members", "3", "--repeat", "2")
    check_positive(row, "detect_ms", "shrink_ms", "kill_to_barrier_ms")


def worlds_form_alone_and_at_once():
    rows = ask("form", "--worlds", "4", "--repeat", "4")
    assert [(row["store"], row["worlds"]) for row in rows] == [
        ("tcp", 1), ("tcp", 4), ("memory", 1), ("memory", 4)], rows
    for row in rows:
        check_positive(row, "form_ms", "form_p99_ms")


def idle_worlds_are_weighed():
    (row,) = ask("idle", "--worlds", "4", "--receives", "20", "--seconds", "0.5")
    assert row["cpu_percent"] < 100 and row["worlds"] == 4 and row["receives"] == 20, row


def a_begun_transfer_is_given_up():
    rows = ask("cancel", "--size", "64M", "--repeat", "2")
    assert [row["side"] for row in rows] == ["receive", "send"], rows
    for row in rows:
        assert row["cancelled"] + row["completed_first"] == 2, row


def a_wrong_question_is_refused():
    run = subprocess.run([sys.argv[1], "p2p", "--sizes", "many"], capture_output=True, text=True,
                         timeout=LIMIT_S)
    assert run.returncode != 0 and "--sizes" in run.stderr, run


def main():
    tests = [
        (messages_are_measured_beside_raw_limits, "auto", "shm"),
        (messages_are_measured_beside_raw_limits, "auto", "tcp"),
        (messages_are_measured_beside_raw_limits, "auto", "shm", "--views", "7"),
        (messages_are_measured_beside_raw_limits, "auto", "shm", "--shared-buffers"),
        (messages_are_measured_beside_raw_limits, "auto", "shm", "--refuse-reading"),
        (messages_are_measured_beside_raw_limits, "epoll", "shm"),
        (pairs_at_once_are_told_by_the_slower_one,),
        (many_worlds_are_told_beside_one,),
        (collectives_are_checked_and_told_in_the_terms_of_nccl_tests,),
        (a_peer_that_is_missing_is_named_with_its_package, "p2p", "ucx-utils", "--sizes", "8,64K",
         "--pings", "20", "--idle-worlds", "1"),
        (a_peer_that_is_missing_is_named_with_its_package, "collectives", "libgloo-dev",
         "--collective-sizes", "8,64K", "--kinds", "reduce", "--members", "2",
         "--collective-seconds", "0.01"),
        (a_fault_is_told_beside_what_the_peers_make_of_it,),
        (a_killed_peer_is_noticed_and_replaced,),
        (a_stopped_peer_is_suspect_before_its_world_breaks,),
        (survivors_of_a_killed_member_shrink,),
        (worlds_form_alone_and_at_once,),
        (idle_worlds_are_weighed,),
        (a_begun_transfer_is_given_up,),
        (a_wrong_question_is_refused,),
    ]
    failed = 0
    for test, *arguments in tests:
        try:
            test(*arguments)
        except Exception as error:
            failed += 1
            print(f"{test.__name__} {arguments}: {error!r}")
    print(f"[doctest] test cases: {len(tests)} | {len(tests) - failed} passed | {failed} failed")
    sys.exit(failed > 0)


main()
