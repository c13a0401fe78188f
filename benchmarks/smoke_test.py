"""Every question of mwbench is asked in small: smoke_test.py MWBENCH.

Prints doctest's summary line, by which tests/tally.py counts. Speeds are not judged here, only that
each answer is there, plausible and in the fields that were promised."""

import json
import os
import pty
import shutil
import socket
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

LIMIT_S = 60


def ask(*arguments):
    """The rows of one run, without the one that tells the machine."""
    command = [sys.argv[1], *arguments, "--json", "--no-launcher", "--limit", str(LIMIT_S)]
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
        check_positive(row, "p50_us", "p99_us", "limit_us", "ratio", "gb_s", "limit_gb_s", "messages_s")
        assert row["spread"] >= 0 and row["wrong"] == (0 if "--check" in options else None), row
        assert row["transport"] == transport and row["p50_us"] <= row["p99_us"], row
        assert row["memory"] == ("shared" if "--shared-buffers" in options else "plain"), row
        assert row["views"] == (7 if "--views" in options else 1), row


def small_messages_are_timed_beside_large_ones():
    rows = ask("beside", "--size", "1M", "--pings", "20", "--transport", "tcp")
    assert [row["small_in"] for row in rows] == ["the same world", "another world"], rows
    for row in rows:
        check_positive(row, "quiet_p50_us", "p50_us", "p99_us", "gb_s")


def each_way_of_io_uring_is_told_that_this_machine_has():
    rows = ask("uring", "--sizes", "64K", "--memory", "1M", "--times", "2", "--rounds", "1", "--pings", "20")
    told = {(row["send"], row["receive"]) for row in rows if row["bench"] != "uring_ping"}
    assert len(told) == 8 and ("send()", "recv()") in told, rows
    for row in rows:
        if row["bench"] == "uring_stream":
            check_positive(row, "gb_s")
        elif row["bench"] == "uring_ping":
            check_positive(row, "p50_us", "p99_us")
        else:
            assert row["bench"] == "uring_missing" and row["why"], row


def operations_of_a_store_are_timed_and_many_clients_meet():
    rows = ask("store", "--count", "50", "--clients", "40")
    assert [row["operation"] for row in rows] == [
        "get", "set", "add", "check", "compare_set", "connect and barrier"], rows
    for row in rows[:-1]:
        check_positive(row, "p50_us", "p99_us")
    check_positive(rows[-1], "clients", "took_ms")


def pairs_at_once_are_told_by_the_slower_one():
    rows = ask("pairs", "--pairs", "2", "--sizes", "8,64K", "--seconds", "0.1")
    assert [row["size"] for row in rows] == [8, 65536], rows
    for row in rows:
        check_positive(row, "mean_us", "p50_us", "p99_us", "round_trips", "raw_us", "raw_p50_us")


def calls_of_a_session_are_told_and_a_worker_is_replaced():
    rows = ask("session", "--workers", "1,3", "--count", "100", "--kills", "1", "--idle", "0.1")
    assert [row["workers"] for row in rows] == [1] * 6 + [3] * 6, rows
    for row in rows:
        if row["bench"] == "session":
            check_positive(row, "entered_us", "call_us", "value_us", "value_p99_us")
        elif row["bench"] == "session_loss":
            check_positive(row, "kill_to_error_ms", "kill_to_next_ms", "other_p99_us", "other_alone_p99_us")
    for row in rows:
        if row.get("how") in ("floor", "spinning"):
            check_positive(row, "issue_us", "call_64k_us")
    assert [row["how"] for row in rows if "how" in row] == ["floor", "spinning", "asleep", "alerted"] * 2, rows


def many_worlds_are_told_beside_one():
    for senders in (1, 2):
        rows = ask("worlds", "--worlds", "16", "--senders", str(senders), "--sizes", "4,64K", "--rounds", "1")
        assert [row["size"] for row in rows] == [4, 65536], rows
        for row in rows:
            check_positive(row, "one_us", "many_us", "one_gb_s", "many_gb_s", "ratio", *["raw_us"][:2 - senders])


def collectives_are_checked_and_told_in_the_terms_of_nccl_tests():
    rows = ask("collectives", "--members", "3", "--sizes", "8,64K", "--seconds", "0.01", "--check")
    assert len(rows) == 17 and len({row["kind"] for row in rows}) == 9, rows
    for row in rows:
        check_positive(row, "time_us", "p50_us", "p99_us", "raw_us", "raw_p50_us")
        assert row["members"] == 3 and row["p50_us"] <= row["p99_us"] and row["wrong"] == 0, row
        if row["size"] == 65536:
            check_positive(row, "count", "algbw_gb_s", "busbw_gb_s")
        if row["kind"] == "all_reduce" and row["size"] == 65536:
            assert (row["count"], row["type"], row["redop"]) == (16384, "float32", "sum"), row
            names = list(row)[list(row).index("size"):]
            assert names == ["size", "count", "type", "redop", "root", "time_us", "algbw_gb_s", "busbw_gb_s",
                             "wrong", "p50_us", "p99_us", "spread", "raw_us", "raw_p50_us"], names


def without_peers(program, *options, packages=("openmpi-bin", "mpich", "python3-torch", "--multiworld"),
                  present=()):
    """What a comparison in `peers` says where no peer is installed but those that are `present`."""
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers", program)
    with tempfile.TemporaryDirectory() as empty:
        figures = os.path.join(empty, "figures.json")
        for program in present:
            os.symlink(shutil.which(program), os.path.join(empty, program))
        run = subprocess.run(
            [sys.executable, script, os.path.abspath(sys.argv[1]), "--json", figures, "--build",
             empty, *options],
            capture_output=True, text=True, timeout=LIMIT_S, env=os.environ | {"PATH": empty})
        assert run.returncode == 0, run.stderr
        with open(figures) as lines:
            about, *rows = map(json.loads, lines)
    for package in packages:
        assert any(package in note for note in about["notes"]), about
    return about, rows


def a_peer_that_is_missing_is_named_with_its_package(question, package, *options):
    about, rows = without_peers("compare.py", "--question", question, "--rounds", "1", *options)
    assert any(package in note for note in about["notes"]), about
    assert [(row["who"], row["size"]) for row in rows] == [
        ("manyworlds", 8), ("manyworlds", 65536)], rows


def messages_over_tcp_are_told_by_both_engines():
    about, rows = without_peers("compare.py", "--question", "tcp", "--networks", "loopback", "--largest", "8K",
                                "--rounds", "1", "--inner-rounds", "1", "--idle-worlds", "1",
                                packages=("openmpi-bin", "mpich", "libgloo-dev", "libucx-dev", "iperf3"))
    assert [(row["who"], row["size"], row["compared"]) for row in rows] == [
        (who, size, compared) for who, compared in (("manyworlds", True), ("manyworlds, epoll", False))
        for size in (8, 1 << 10, 8 << 10)], rows
    assert all(row["network"] == "loopback" and row["raw_us"] > 0 for row in rows), rows


def a_fault_is_told_beside_what_the_peers_make_of_it():
    _, (row,) = without_peers("fail.py", "--kills", "1", "--stops", "0")
    assert (row["who"], row["fault"], row["noticed"]) == ("manyworlds", "kill", 1), row
    check_positive(row, "ms")


def a_store_is_told_beside_what_others_make_of_it():
    etcd = ["etcd"] if shutil.which("etcd") else []
    _, rows = without_peers("store.py", "--rounds", "1", "--count", "50", "--clients", "20", present=etcd,
                            packages=("python3-torch", "golang-etcd-server-dev"))
    operations = ["get", "set", "add", "check", "compare_set"]
    asked = [(who, operation) for who in ["manyworlds", "manyworlds, near", *(["our client of etcd"] if etcd else [])]
             for operation in operations]
    assert [(row["who"], row["operation"]) for row in rows] == [
        *asked, ("manyworlds", "connect and barrier")], rows
    for row in rows[:-1]:
        check_positive(row, "p50_us", "p99_us")
    check_positive(rows[-1], "clients", "took_ms")


def a_launcher_is_told_beside_torchrun():
    """Where mwrun was built, and lies in the same build folder."""
    if not os.access(os.path.join(os.path.dirname(sys.argv[1]), "../src/tools/mwrun"), os.X_OK):
        return
    _, rows = without_peers("launch.py", "--torchrun", "no-torchrun", "--rounds", "1", "--runs", "3", "--kills", "2",
                            "--idle", "1", "--restarts", "20", "--only",
                            "whole,sigterm,far,grow,lost,replacement,worlds,agent,restarts", packages=("install.sh --torch",))
    assert [row["who"] for row in rows] == ["manyworlds"] * 9, rows
    for row in rows[:-1]:
        check_positive(row, "p50_ms", "p99_ms")
    check_positive(rows[-1], "took_ms")


def rounds_are_told_of_each_backend_that_is_here():
    rows = ask("rendezvous", "--repeat", "1")
    steps = ["nodes at once, to their round", "a node killed, to the next round",
             "a node more, to the round with it", "coordinator killed, to the next round"]
    alone = steps[:3] + ["coordinator killed, to no_coordinator"]
    backends = {"tcp": steps, "tcp, several hosts": alone}
    if shutil.which("etcd"):
        backends["etcd"] = steps
    backends["file"] = steps
    assert [(row["backend"], row["what"]) for row in rows] == [
        (backend, what) for backend, of_it in backends.items() for what in of_it], rows
    for row in rows:
        check_positive(row, "p50_ms", "max_ms")


def a_killed_peer_is_noticed_and_replaced():
    (row,) = ask("fail", "--fault", "kill", "--repeat", "2")
    check_positive(row, "detect_ms", "reform_ms", "healthy_max_gap_ms", "quiet_max_gap_ms")
    assert row["repeats"] == 2, row


def a_stopped_peer_is_suspect_before_its_world_breaks():
    (row,) = ask("fail", "--fault", "stop", "--repeat", "1", "--alone")
    # Silence counts from the last beat, which may have come a heartbeat before the stop.
    assert 700 < row["suspect_ms"] < row["broken_ms"], row


def a_member_that_is_cut_off_is_noticed_by_each_survivor():
    (row,) = ask("fail", "--fault", "cut", "--members", "4", "--repeat", "1")
    assert row["transport"] == "tcp" and len(row["survivors_ms"]) == 2, row
    assert 700 < row["suspect_ms"] < row["broken_ms"] and min(row["survivors_ms"]) > 700, row
    check_positive(row, "reform_ms", "healthy_max_gap_ms")


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


def starts_are_told_beside_posix_spawn_and_fork():
    rows = ask("process", "--repeat", "5", "--touched", "8")
    assert [(row["what"], row["beside"]) for row in rows] == [
        (what, beside) for beside in ("posix_spawn", "fork, exec, waitpid")
        for what in ("start to first instruction", "end to waiter")], rows
    for row in rows:
        check_positive(row, "us", "p99_us", "beside_us", "ratio")


def awaits_are_told_beside_what_they_stand_for():
    rows = ask("await", "--count", "1000", "--rounds", "2")
    assert len({row["what"] for row in rows}) == len(rows) == 16, rows
    for row in rows:
        check_positive(row, "ns", "p99_ns", "bare_ns")


def worlds_are_weighed_apart_from_what_they_share():
    rows = ask("memory", "--worlds", "4")
    assert [(row["what"], row["rank"], row["worlds"]) for row in rows] == [
        ("first and link", "0", 1), ("first and link", "1", 1), ("each more", "0", 4),
        ("each more", "1", 4)], rows
    assert [row["on_shm"] for row in rows] == [1, 1, 4, 4], rows
    for row in rows[:2]:
        check_positive(row, "used_own_kib", "used_shared_kib")


def growth_is_told_by_worlds_and_by_members(transport):
    rows = ask("scale", "--worlds", "1,4", "--members", "2,3", "--seconds", "0.4", "--pings", "50",
               "--repeat", "2", "--transport", transport)
    assert [row.get("worlds") for row in rows] == [1, 4, None, None], rows
    assert [row.get("members") for row in rows] == [None, None, 2, 3], rows
    for row in rows[:2]:
        assert row["on_shm"] == (row["worlds"] if transport == "shm" else 0), row
        check_positive(row, "form_ms_each", "leave_ms_each", "ping_p50_us", "ping_p99_us")
    for row in rows[2:]:
        check_positive(row, "first_form_ms", "form_ms", "barrier_us", "barrier_p99_us")
    for row in rows:
        assert (row["segments_per_s"] > 0) == (transport == "tcp"), row


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def launched(size, *arguments, environment=None):
    """One run of each rank, as a launcher starts them."""
    port = str(free_port())
    command = [sys.argv[1], *arguments, "--json", "--limit", str(LIMIT_S)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=os.environ | {"RANK": str(rank), "WORLD_SIZE": str(size),
                                                  "MASTER_ADDR": "localhost", "MASTER_PORT": port}
                                | (environment or {}))
               for rank in range(size)]
    return [(process.communicate(timeout=LIMIT_S + 10), process.returncode) for process in started]


def a_launcher_starts_the_processes(size, question, *arguments):
    runs = launched(size, question, *arguments)
    assert all(code == 0 and not errors for (_, errors), code in runs), runs
    (output, _), _ = runs[0]
    rows = [json.loads(line) for line in output.splitlines()]
    assert [row["bench"] for row in rows[:2]] == ["machine", question], rows
    assert not any(rest for (rest, _), _ in runs[1:]), runs


def what_a_launcher_cannot_be_asked_is_refused():
    for size, question, words in ((2, "fail", "starts its processes itself"), (3, "p2p", "2 processes")):
        for (_, errors), code in launched(size, question):
            assert code == 1 and words in errors, errors
    for (_, errors), code in launched(2, "p2p", environment={"MASTER_PORT": ""}):
        assert code == 1 and 'MASTER_PORT="" was given' in errors, errors


def curves_are_drawn():
    with tempfile.TemporaryDirectory() as folder:
        at_once = os.path.join(folder, "at_once.svg")
        rows = ask("collectives", "--kinds", "broadcast", "--sizes", "8,1K", "--seconds", "0.01", "--plot", at_once)
        peers = os.path.join(folder, "rows.json")
        with open(peers, "w") as out:
            for who in ("manyworlds", "Open <MPI>"):
                out.writelines(json.dumps(row | {"who": who}) + "\n" for row in rows)
        later = os.path.join(folder, "later.svg")
        subprocess.run([sys.argv[1], "draw", peers, later], check=True, timeout=LIMIT_S)
        for file, curves in ((at_once, 1), (later, 2)):
            tree = xml.etree.ElementTree.parse(file)
            found = tree.findall(".//{http://www.w3.org/2000/svg}polyline")
            assert len(found) == curves, file


def a_terminal_sees_progress_and_a_pipe_does_not():
    command = [sys.argv[1], "p2p", "--sizes", "8", "--rounds", "1", "--pings", "20", "--no-launcher"]
    for options, expected in (([], True), (["--json"], False)):
        ours, theirs = pty.openpty()
        subprocess.run([*command, *options], stdout=subprocess.PIPE, stderr=theirs, check=True, timeout=LIMIT_S)
        os.close(theirs)
        try:
            seen = os.read(ours, 1 << 16)
        except OSError:
            seen = b""
        os.close(ours)
        assert (b"round 1 of 1" in seen) == expected, seen
        assert not expected or seen.endswith(b"\r\x1b[K"), seen


def a_wrong_question_is_refused():
    too_many = len(os.sched_getaffinity(0)) + 1
    for question, words in (("p2p --sizes many", "--sizes"),
                            (f"collectives --pin --members {too_many}", f"{too_many} members want a CPU each")):
        run = subprocess.run([sys.argv[1], *question.split(), "--no-launcher"], capture_output=True, text=True,
                             timeout=LIMIT_S)
        assert run.returncode != 0 and words in run.stderr, run


def main():
    tests = [
        (messages_are_measured_beside_raw_limits, "auto", "shm"),
        (messages_are_measured_beside_raw_limits, "auto", "shm", "--check"),
        (messages_are_measured_beside_raw_limits, "auto", "tcp", "--check", "--views", "7"),
        (messages_are_measured_beside_raw_limits, "auto", "tcp"),
        (messages_are_measured_beside_raw_limits, "auto", "shm", "--views", "7"),
        (messages_are_measured_beside_raw_limits, "auto", "shm", "--shared-buffers"),
        (messages_are_measured_beside_raw_limits, "auto", "shm", "--refuse-reading"),
        (messages_are_measured_beside_raw_limits, "epoll", "shm"),
        (small_messages_are_timed_beside_large_ones,),
        (each_way_of_io_uring_is_told_that_this_machine_has,),
        (operations_of_a_store_are_timed_and_many_clients_meet,),
        (pairs_at_once_are_told_by_the_slower_one,),
        (calls_of_a_session_are_told_and_a_worker_is_replaced,),
        (many_worlds_are_told_beside_one,),
        (collectives_are_checked_and_told_in_the_terms_of_nccl_tests,),
        (a_peer_that_is_missing_is_named_with_its_package, "p2p", "ucx-utils", "--sizes", "8,64K",
         "--pings", "20", "--idle-worlds", "1"),
        (a_peer_that_is_missing_is_named_with_its_package, "collectives", "libgloo-dev",
         "--collective-sizes", "8,64K", "--kinds", "reduce", "--members", "2",
         "--collective-seconds", "0.01"),
        (messages_over_tcp_are_told_by_both_engines,),
        (a_fault_is_told_beside_what_the_peers_make_of_it,),
        (a_store_is_told_beside_what_others_make_of_it,),
        (rounds_are_told_of_each_backend_that_is_here,),
        (a_killed_peer_is_noticed_and_replaced,),
        (a_stopped_peer_is_suspect_before_its_world_breaks,),
        (a_member_that_is_cut_off_is_noticed_by_each_survivor,),
        (survivors_of_a_killed_member_shrink,),
        (worlds_form_alone_and_at_once,),
        (idle_worlds_are_weighed,),
        (a_begun_transfer_is_given_up,),
        (starts_are_told_beside_posix_spawn_and_fork,),
        (a_launcher_is_told_beside_torchrun,),
        (awaits_are_told_beside_what_they_stand_for,),
        (worlds_are_weighed_apart_from_what_they_share,),
        (growth_is_told_by_worlds_and_by_members, "shm"),
        (growth_is_told_by_worlds_and_by_members, "tcp"),
        (a_launcher_starts_the_processes, 2, "p2p", "--sizes", "8,64K", "--rounds", "1", "--pings", "20"),
        (a_launcher_starts_the_processes, 3, "collectives", "--sizes", "8", "--seconds", "0.01"),
        (a_launcher_starts_the_processes, 3, "worlds", "--worlds", "4", "--sizes", "8", "--rounds", "1"),
        (a_launcher_starts_the_processes, 3, "scale", "--seconds", "0.2", "--repeat", "1"),
        (what_a_launcher_cannot_be_asked_is_refused,),
        (curves_are_drawn,),
        (a_terminal_sees_progress_and_a_pipe_does_not,),
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
