#!/usr/bin/env python3
"""mwrun as its user sees it: what workers get, what is started again, what ends, and what is printed.

usage: mwrun_test.py MWRUN LAUNCHED MWSTAT

The numbers are those of the acceptance cases L and P. Where MANYWORLDS_TEST_LONG is set, torchrun runs beside it
(MANYWORLDS_TORCHRUN is its command).
"""
import http.client
import json
import os
import re
import resource
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from jobs import CLEAN, LIMIT, SETS, claim, finish, is_gone, run, shell, start, until
from watched_program import ARGUMENTS, MARK, PROGRAM, claim_nothing_is_left, failures

LAUNCHED = os.path.abspath(ARGUMENTS[0])
MWSTAT = os.path.abspath(ARGUMENTS[1])


def variables_of(*options, environment=None):
    """What each worker finds in its environment, by its local rank."""
    with tempfile.TemporaryDirectory() as folder:
        code, _, err = run(*options, "--redirects=1", f"--log-dir={folder}", "--no-python", "env", "-0",
                           environment=environment)
        assert code == 0, err
        place = os.path.join(folder, os.listdir(folder)[0], "attempt_0")
        found = {}
        for local_rank in os.listdir(place):
            with open(os.path.join(place, local_rank, "stdout.log"), encoding="utf-8") as file:
                found[int(local_rank)] = dict(each.split("=", 1) for each in file.read().split("\0") if each)
        return found


def environment():
    code, out, err = run("--standalone", "--nproc-per-node", "2", "--no-python", "--dry-run", "prog", "${local_rank}",
                         "a b\n")
    plan = json.loads(out)
    claim("--dry-run prints commands and environments, and starts nothing",
          code == 0 and [each["command"] for each in plan] == [["prog", "0", "a b\n"], ["prog", "1", "a b\n"]],
          "" if code == 0 else err)
    names = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_NAME",
             "ROLE_RANK", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT",
             "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE",
             "TORCHELASTIC_ERROR_FILE", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "OMP_NUM_THREADS"}
    ours = {"MANYWORLDS_RUN_ID", "MANYWORLDS_ATTEMPT", "MANYWORLDS_INCARNATION"}
    claim("L4 workers get the variables of torchrun 2.6, and ours", set(plan[1]["environment"]) == names | ours,
          set(plan[1]["environment"]) ^ (names | ours))
    want = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0",
            "GROUP_WORLD_SIZE": "1", "ROLE_RANK": "1", "ROLE_WORLD_SIZE": "2", "ROLE_NAME": "default",
            "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0", "MANYWORLDS_INCARNATION": "1"}
    got = {name: plan[1]["environment"][name] for name in want}
    claim("L4 with the values that torchrun gives", got == want, got)
    one = variables_of("--nproc-per-node", "1")[0]
    preset = variables_of("--nproc-per-node", "2", environment={**CLEAN, "OMP_NUM_THREADS": "7"})[1]
    claim("L5 OMP_NUM_THREADS is 1 for several workers, unless it was set",
          "OMP_NUM_THREADS" not in one and preset["OMP_NUM_THREADS"] == "7")
    virtual = variables_of("--nproc-per-node=2", "--virtual-local-rank",
                           environment={**CLEAN, "CUDA_VISIBLE_DEVICES": "4,6"})
    claim("L7 with virtual local ranks each worker sees its own GPU as device 0",
          [(v["LOCAL_RANK"], v["CUDA_VISIBLE_DEVICES"]) for v in (virtual[0], virtual[1])] == [("0", "4"), ("0", "6")])
    code, _, err = run("--nproc-per-node=gpu", "--no-python", "true", environment={**CLEAN, "CUDA_VISIBLE_DEVICES": ""})
    claim("L6 gpu without one is refused in one line", code == 2 and err.count("\n") == 1 and "gpu" in err, err)
    code, out, err = run("--nproc-per-node=2", "--numa-binding=node", "--no-python", sys.executable, "-c",
                         "import os; os.write(1, f'{sorted(os.sched_getaffinity(0))}\\n'.encode())")
    nodes = len([name for name in os.listdir("/sys/devices/system/node") if re.fullmatch(r"node\d+", name)])
    all_of_them = str(sorted(os.sched_getaffinity(0)))
    claim("--numa-binding binds workers to the CPUs of a node", code == 0 and out.count("[") == 2 and
          (nodes > 1 or out.splitlines() == [all_of_them] * 2), (code, out, err))
    code, _, err = run("--nproc-per-node=4096", "--numa-binding=exclusive", "--no-python", "true")
    claim("more workers than cores cannot each have one alone: exit 2, nothing started", code == 2 and
          err.count("\n") == 1 and "cores for" in err, (code, err))
    odd = ["quote'\"", "new\nline", "$(touch /nothing)", "", "x" * 100000]
    code, out, _ = run("--no-python", sys.executable, "-c", "import sys, json; print(json.dumps(sys.argv[1:]))", *odd)
    claim("L68 arguments arrive byte for byte", code == 0 and json.loads(out) == odd)


def python():
    with tempfile.TemporaryDirectory() as folder:
        script = os.path.join(folder, "script.py")
        with open(script, "w", encoding="ascii") as file:
            file.write("import os, sys; print(__name__, os.environ['RANK'], sys.argv[1:])\n")
        chosen = {**CLEAN, "PYTHON_EXEC": sys.executable, "PYTHONPATH": folder}
        _, out, err = run(script, "-r", "3", environment=chosen)
        claim("L9 a script is run by Python, and keeps its options", out == "__main__ 0 ['-r', '3']\n", out + err)
        _, out, err = run("-m", "script", "x", environment=chosen)
        claim("L9 a module is run by Python", out == "__main__ 0 ['x']\n", out + err)
        code, out, err = finish(subprocess.Popen(
            ["bash", "-c", 'exec -a mwlaunch "$@"', "bash", PROGRAM, script, "y"], env=chosen, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE))
        claim("mwlaunch gives the local rank as an argument", out == "__main__ 0 ['--local-rank=0', 'y']\n", out + err)


def lives_and_deaths():
    claim("L20 what succeeds ends with 0", shell("exit 0", "--nproc-per-node=2")[0] == 0)
    code, _, err = shell("[ $RANK = 1 ] && exit 7; exec sleep 60", "--nproc-per-node=3")
    claim("L21 a worker that fails ends the others, and the exit code is 1",
          code == 1 and "exitcode  : 7" in err and "NO_OTHER_FAILURES" in err, err)
    code, _, _ = shell("[ $RANK = 1 ] && exit 7; exec sleep 60", "--nproc-per-node=2", "--propagate-exit-code")
    claim("L21 or the worker's own where that is asked for", code == 7, code)
    for name in ("KILL", "SEGV", "ABRT"):
        number = getattr(signal, f"SIG{name}").value
        code, _, err = shell(f"ulimit -c 0; kill -{name} $$")
        claim(f"L22 the summary names SIG{name}", code == 1 and f"exitcode  : -{number} (pid:" in err and
              f"Signal {number} (SIG{name}) received by PID" in err, err)
    code, out, err = shell("echo $RANK.$TORCHELASTIC_RESTART_COUNT.$MANYWORLDS_ATTEMPT; "
                           "[ $RANK = 1 ] && [ $TORCHELASTIC_RESTART_COUNT -lt 2 ] && exit 3; exec sleep 0.3",
                           "--nproc-per-node=2", "--max-restarts=2")
    claim("L23 the group is started again as often as allowed, and then succeeds",
          code == 0 and sorted(out.split())[-3:] == ["1.0.0", "1.1.1", "1.2.2"] and "0.2.2\n" in out, out + err)
    code, out, err = shell("echo x; exit 3", "--max-restarts=2")
    claim("L23 and fails when none is left, and says so", code == 1 and out == "x\n" * 3 and
          "mwrun: no restarts are left, of 2\n" in err, out + err)
    ports = shell("echo $MASTER_PORT; exit 3", "--max-restarts=3")[1].split()
    claim("each attempt has a store of its own", len(set(ports)) == 4, ports)


def one_worker_alone():
    script = ("echo $RANK.$MANYWORLDS_INCARNATION.$$.$MASTER_PORT; "
              "[ $RANK = 2 ] && [ $MANYWORLDS_INCARNATION -lt 3 ] && kill -9 $$; exec sleep 1")
    code, out, err = shell(script, "--nproc-per-node=4", "--restart-scope=worker", "--max-restarts=10")
    lines = [line.split(".") for line in out.split()]
    ranks = sorted((int(line[0]), int(line[1])) for line in lines)
    claim("L62 a dead worker alone is started again, in its rank",
          code == 0 and ranks == [(0, 1), (1, 1), (2, 1), (2, 2), (2, 3), (3, 1)], out + err)
    claim("L62 with the store of the others", len({line[3] for line in lines}) == 1)
    # The second may have ended before it could be said that it was started.
    claim("and it is told so", re.search(r"rank 2 \(pid \d+\) killed by signal 9 \(SIGKILL\); the others go on\n"
                                         r"(mwrun: rank 2 reports nothing .*\n)?"
                                         r"mwrun: rank 2 started again as pid \d+, incarnation 3, after", err), err)
    with tempfile.TemporaryDirectory() as folder:
        first = f"for i in $(seq 100); do setsid sleep 300 & done; echo $! > {folder}/pid; kill -9 $$; fi; "
        second = f"grep -qs '^State:.[^ZX]' /proc/$(cat {folder}/pid)/status || echo gone"
        _, out, err = shell(f"if [ $MANYWORLDS_INCARNATION = 1 ]; then {first} {second}", "--restart-scope=worker",
                            "--max-restarts=1")
        claim("L62 what a dead worker has started is gone before its successor starts", out == "gone\n", out + err)
    code, out, err = shell("echo $RANK; exit 3", "--restart-scope=worker", "--max-restarts=5",
                           "--max-restarts-per-rank=1")
    claim("L63 a rank without restarts left is a restart of the group, as long as there are any",
          code == 1 and out.count("0\n") == 6 and "rank 0 has no restarts left, of " in err, out + err)
    serving = start("--nproc-per-node=3", "--restart-scope=worker", "--max-restarts=50", "--no-python", LAUNCHED,
                    "wait")
    code = None
    try:
        claim("three members of a world are there", until(lambda: len(members()) == 3), members())
        for i in range(5):
            before = members()
            victim = sorted(before)[i % len(before)]
            os.kill(victim, signal.SIGKILL)
            claim("L62 the killed one is replaced, and no other", until(
                lambda: victim not in members() and len(members()) == 3 and before - {victim} <= members()),
                  (before, victim, members()))
    finally:
        serving.send_signal(signal.SIGTERM)
        code = finish(serving)
    claim("and SIGTERM ends all", code[0] == 1 and "SIGTERM" in code[2], code)


def members():
    """The processes of our program that this test has started."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as environ:
                if os.readlink(f"/proc/{pid}/exe") == LAUNCHED and MARK.encode() in environ.read().split(b"\0"):
                    found.add(int(pid))
        except OSError:
            pass  # ended meanwhile
    return found


def signals():
    for name in ("TERM", "INT", "HUP", "QUIT"):
        number = getattr(signal, f"SIG{name}")
        process = start("--no-python", "sh", "-c", f'trap "echo got {name}; exit 0" {name}; echo up; while :; do '
                        "sleep 0.05; done")
        process.stdout.readline()
        process.send_signal(number)
        code, out, err = finish(process)
        claim(f"L24 SIG{name} goes to the workers", code == 1 and f"got {name}" in out, (code, out, err))
        process = start("--no-python", "sh", "-c", "setsid sh -c 'trap \"sleep 0.3; echo saved; exit 0\" TERM; echo up; "
                        "while :; do sleep 0.05; done' & exec sleep 60")
        process.stdout.readline()
        process.send_signal(number)
        code, out, err = finish(process)
        claim(f"L25 what the worker has started hears of SIG{name}'s end by SIGTERM, and has the grace, too",
              code == 1 and out == "saved\n", (code, out, err))
    ignores = ["--shutdown-timeout=1", "--nproc-per-node=2", "--no-python", "sh", "-c",
               'trap "" TERM; echo up; while :; do sleep 0.05; done']
    process = start(*ignores)
    process.stdout.readline()
    began = time.monotonic()
    process.terminate()
    code, _, err = finish(process)
    took = time.monotonic() - began
    claim("L25 a worker that ignores SIGTERM is gone after the grace", code == 1 and 0.9 < took < 20, (code, took, err))
    process = start("--shutdown-timeout=50", *ignores[1:])
    process.stdout.readline()
    began = time.monotonic()
    process.terminate()
    time.sleep(0.3)
    process.terminate()
    code, _, err = finish(process)
    claim("L24 a second signal kills at once, and that is what is said", code == 1 and
          time.monotonic() - began < 20 and "SIGTERM again: the workers are killed\n" in err, err)
    began = time.monotonic()
    code, _, err = shell('if [ $RANK = 0 ]; then sleep 0.2; exit 3; fi; trap "" TERM; while :; do sleep 0.05; done',
                         "--nproc-per-node=2", "--shutdown-timeout=1")
    claim("the grace counts on every path", code == 1 and time.monotonic() - began < 20, err)


def starters():
    def started(words, prepare, **streams):
        process = subprocess.Popen([PROGRAM, *words], env=CLEAN, start_new_session=True, preexec_fn=prepare,
                                   **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams})
        try:
            out, err = process.communicate(timeout=LIMIT)
        finally:
            process.kill()
        return process.returncode, (out or b"").decode(), (err or b"").decode()

    def ignores(number):
        return lambda: signal.signal(number, signal.SIG_IGN)

    code, _, err = started(["--no-python", "true"], ignores(signal.SIGCHLD))
    claim("a starter that ignores SIGCHLD does not hide exit codes", code == 0, err)
    never_read, broken = os.pipe()
    os.close(never_read)
    last = "[ $TORCHELASTIC_RESTART_COUNT = 2 ] && echo last; exit 7"
    code, out, _ = started(["--max-restarts=2", "--propagate-exit-code", "--no-python", "sh", "-c", last], None,
                           stderr=broken)
    os.close(broken)
    claim("a job outlives the reader of its messages, and ends with its own exit code", (code, out) == (7, "last\n"),
          (code, out))
    for number in (0, 1, 2):
        code, out, err = started(["--no-python", "sh", "-c", "readlink /proc/$$/fd/0 /proc/$$/fd/1 /proc/$$/fd/2 >&2; "
                                  "readlink /proc/$$/fd/2"], lambda closed=number: os.close(closed))
        claim(f"a worker gets no descriptor of ours where the starter has closed {number}", code == 0 and
              "socket:" not in out + err and (number == 2) == ("/dev/null" in out), (code, out, err))
    process = subprocess.Popen([PROGRAM, "--no-python", "sh", "-c", "echo up; sleep 1; echo done"], env=CLEAN,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
                               preexec_fn=ignores(signal.SIGHUP))
    process.stdout.readline()
    process.send_signal(signal.SIGHUP)
    code, out, err = finish(process)
    claim("a job under nohup outlives its terminal", code == 0 and out == "done\n", (code, out, err))
    code, _, err = started(["--no-python", "true"], lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8)))
    claim("too few descriptors are named with their limit", code == 1 and "Too many open files (ulimit -n)" in err,
          (code, err))
    for wrong in ("--rdzv-id=a/b", "--role=a b"):
        code, _, err = run(wrong, "--no-python", "true")
        claim(f"{wrong} is a wrong command line", code == 2 and err.count("\n") == 1, (code, err))


def descendants():
    with tempfile.TemporaryDirectory() as folder:
        noted = os.path.join(folder, "pid")
        script = f"setsid sleep 300 & echo $! > {noted}.new; mv {noted}.new {noted}; "
        code, _, err = shell(script + "exit 0")
        with open(noted, encoding="ascii") as file:
            pid = int(file.read())
        claim("L27 a worker that exits leaves no descendants", code == 0 and until(lambda: is_gone(pid)), (code, err))
        os.remove(noted)
        # What lives on keeps no pipe of this test open.
        code, _, err = shell("exec > /dev/null 2>&1; " + script + "exit 0", "--keep-descendants")
        with open(noted, encoding="ascii") as file:
            pid = int(file.read())
        claim("L27 --keep-descendants leaves them", code == 0 and not is_gone(pid), (code, err))
        os.kill(pid, signal.SIGKILL)
        os.remove(noted)
        code, _, err = shell(script + "exit 3", "--keep-descendants")
        with open(noted, encoding="ascii") as file:
            pid = int(file.read())
        claim("L27 but not those of a worker that failed", code == 1 and until(lambda: is_gone(pid)), (code, err))


def files():
    with tempfile.TemporaryDirectory() as folder:
        logs = os.path.join(folder, "logs")
        code, out, err = shell("echo out; echo err >&2; printf rest", "--nproc-per-node=2", "--tee=3", f"--log-dir={logs}",
                               "--log-line-prefix-template=<${role_name} ${rank} ${local_rank}>")
        claim("L34 what is shown comes by line, behind a prefix",
              sorted(out.splitlines()) == ["<default 0 0>out", "<default 0 0>rest", "<default 1 1>out",
                                           "<default 1 1>rest"] and "<default 1 1>err\n" in err, out + err)
        runs = os.listdir(logs)
        place = os.path.join(logs, runs[0], "attempt_0", "1")
        with open(os.path.join(place, "stdout.log"), encoding="ascii") as file:
            claim("L33 and stands in files", file.read() == "out\nrest" and sorted(os.listdir(place)) == [
                "stderr.log", "stdout.log"], os.listdir(place))
        _, out, _ = shell("echo $RANK", "--nproc-per-node=3", "--local-ranks-filter=0,2")
        claim("L34 a filter shows some ranks alone", sorted(out.split()) == ["0", "2"], out)
        _, out, _ = shell("echo $RANK", "--nproc-per-node=2", "--redirects=0:1", f"--log-dir={logs}")
        claim("L10 one stream of one rank goes to its file", out.split() == ["1"], out)
        many = "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done; head -c 200000 /dev/zero | tr '\\0' x"
        code, out, err = shell(many, "--tee=1", f"--log-dir={logs}")
        lines = out.splitlines()
        claim("L32 nothing is lost of much output, and it comes before the end", code == 0 and len(lines) == 20001 and
              len(lines[-1]) == 200000 + len("[default0]:"), (code, len(lines), err))
        here = {**CLEAN, "TMPDIR": folder}
        shell("exit 3", "--max-restarts=1", environment=here)
        run("--dry-run", "--no-python", "true", environment=here)
        claim("L33 nothing stays of a folder of its own in which nothing was written", os.listdir(folder) == ["logs"],
              os.listdir(folder))
        shell("echo x", "--redirects=1", environment=here)
        claim("L33 what was written stays", len(os.listdir(folder)) == 2)
        code, out, err = shell("echo keep $RANK; echo no; echo a,b; echo KEEP >&2; [ $MANYWORLDS_ATTEMPT = 1 ] || exit 3",
                               "--nproc-per-node=2", "--tee=0:3,1:1", "--duplicate-stdout-filters=keep,a,,b",
                               "--duplicate-stderr-filters=KEEP", "--max-restarts=1", f"--log-dir={folder}/filtered")
        place = os.path.join(folder, "filtered", os.listdir(os.path.join(folder, "filtered"))[0])

        def filtered(name):
            with open(os.path.join(place, "attempt_1", name), encoding="ascii") as file:
                return sorted(file.read().splitlines())
        claim("L34 lines of all workers that contain a text go to one file of the attempt, too", code == 0 and
              filtered("filtered_stdout.log") == ["[default0]:a,b", "[default0]:keep 0", "[default1]:a,b",
                                                  "[default1]:keep 1"] and
              filtered("filtered_stderr.log") == ["[default0]:KEEP"], (code, out, err))
        code, out, _ = shell("echo x$TORCHELASTIC_ERROR_FILE", "--log-dir=/dev/null", "--tee=3")
        claim("L35 without a folder the job runs, and the output is the console's", code == 0 and out == "x\n", out)
        code, out, err = shell("echo x", "--log-dir=/proc/nothing", "--tee=3")
        claim("L35 so it does where the folder cannot be made, and says so", code == 0 and out == "x\n" and
              "there are no log and error files" in err, out + err)


def events():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "events")
        code, _, err = shell("[ $RANK = 0 ] || exit 3; exec sleep 60", "--nproc-per-node=2", "--max-restarts=1", "--rdzv-id=job7",
                             f"--event-log-handler=file:{path}")
        with open(path, encoding="ascii") as file:
            all_of_them = [json.loads(line) for line in file]
        fields = {"run_id", "global_rank", "group_rank", "worker_id", "role", "hostname", "state", "total_run_time",
                  "rdzv_backend", "raw_error", "metadata", "agent_restarts", "duration_ms"}
        claim("L40 each event is a line of JSON with torch's fields and a time", code == 1 and all(
            set(each["metadata"]) == fields and abs(each["timestamp"] / 1000 - time.time()) < 60 and
            each["name"] == "torchelastic.worker.status." + each["metadata"]["state"] and
            each["metadata"]["run_id"] == "job7" and isinstance(json.loads(each["metadata"]["metadata"]), dict)
            for each in all_of_them), (code, err, all_of_them))
        seen = sorted((each["source"], each["metadata"]["state"], each["metadata"]["global_rank"])
                      for each in all_of_them if each["metadata"]["state"] not in ("RENDEZVOUS", "ASSIGN_WORKER_RANKS"))
        claim("L40 of each start and end of each worker, and of the job", seen == [("AGENT", "FAILED", None)] + sorted(
            [("WORKER", state, rank) for rank, end in ((0, "TERMINATED"), (1, "FAILED")) for state in (end, "START")] * 2),
              seen)
    code, _, err = shell("true", "--event-log-handler=console")
    claim("L40 the console's go to the error output", code == 0 and '"state":"SUCCEEDED"' in err, err)
    code, _, err = shell("true", "--event-log-handler=nothing")
    claim("a sink that is not known is named: exit 2", code == 2 and err.count("\n") == 1 and '"nothing"' in err, err)
    code, _, err = run("--standalone", LAUNCHED)
    claim("a program that is no Python script is named, with the option that runs it: exit 2",
          code == 2 and err == f"mwrun: {LAUNCHED} is no Python script: give --no-python\n", err)
    code, out, err = shell("echo x", "--event-log-handler=file:/proc/nothing/events")
    claim("a file that cannot be made is told of, and ends no job", code == 0 and out == "x\n" and "nothing is recorded" in
          err, err)


def stuck_files():
    """Files of a user's that are full, or pipes that no process reads."""
    with tempfile.TemporaryDirectory() as folder:
        pipe = os.path.join(folder, "pipe")
        os.mkfifo(pipe)
        code, out, err = shell("echo x", f"--event-log-handler=file:{pipe}")
        claim("a pipe without a reader keeps no job from starting", code == 0 and out == "x\n" and
              "nothing is recorded" in err, (code, out, err))
        code, out, err = shell("echo x", "--event-log-handler=file:/dev/full")
        claim("events that a full disk does not take are told of", code == 0 and out == "x\n" and
              "events and metrics were lost: write: No space left" in err, (code, out, err))
        text = """echo '{"message": "x"}' > $TORCHELASTIC_ERROR_FILE; exit 5"""
        code, _, err = shell(text, environment={**CLEAN, "TORCHELASTIC_ERROR_FILE": pipe})
        claim("nor from ending, where the root cause goes there", code == 1 and "cannot be written" in err, (code, err))
        code, out, err = shell("echo x; echo y >&2", "--redirects=3", "--log-dir=/proc/nothing")
        claim("where files cannot be made, what workers print is on the console", code == 0 and out == "x\n" and
              "y\n" in err and "workers print to the console" in err, (code, out, err))
        code, out, err = shell("echo x", "--tee=1", environment={**CLEAN, "TMPDIR": "/proc/nothing"})
        claim("no folder of its own is told of", code == 0 and out == "x\n" and
              "there are no log and error files" in err, (code, out, err))
    for wrong in ("--secret-file=/nothing", "--agent-lost-after=0"):
        code, _, err = run(wrong, "--no-python", "true")
        claim(f"{wrong} is a wrong command line", code == 2 and err.count("\n") == 1, (code, err))


def probe(port, host="127.0.0.1", method="GET"):
    """What a probe is answered: the code and the text, or nothing where no process listens."""
    try:
        connection = http.client.HTTPConnection(host, port, timeout=5)
        connection.request(method, "/")
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except (OSError, http.client.HTTPException):
        return None, ""


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def health():
    with tempfile.TemporaryDirectory() as folder:
        up = os.path.join(folder, "up")
        port = free_port()
        claim("L42 before the job no process answers", probe(port)[0] is None)
        process = start("--nproc-per-node=2", "--rdzv-id=probed", f"--health-endpoint={port}", "--shutdown-timeout=20",
                        "--no-python", "sh", "-c", f"trap : TERM; echo > {up}.$RANK; while :; do sleep 0.05; done")
        try:
            claim("the job is up", until(lambda: all(os.path.exists(f"{up}.{rank}") for rank in (0, 1))))
            claim("L42 while workers run the answer is 200, with how many there are",
                  until(lambda: probe(port) == (200, "round 1: of 2 workers 2 run, 0 start, 0 succeeded; 0 restarts\n")),
                  probe(port))
            claim("L42 to HEAD, too, and not to POST", [probe(port, method=each)[0] for each in ("HEAD", "POST")] ==
                  [200, 405])
            with socket.create_connection(("127.0.0.1", port)) as silent:
                silent.sendall(b"GET / HT")
                claim("L42 a client that says half of a question holds up no other", probe(port)[0] == 200)
            crowd = [socket.create_connection(("127.0.0.1", port)) for _ in range(80)]
            for one in crowd:
                one.sendall(b"G")
            time.sleep(0.3)
            for one in crowd:
                one.close()
            claim("L42 more clients than it takes hold it up no longer than they stay",
                  until(lambda: probe(port)[0] == 200), probe(port))
            crowd = [socket.create_connection(("127.0.0.1", port)) for _ in range(700)]
            for one in crowd:
                one.sendall(b"G")
            begun = time.monotonic()
            answer = probe(port)
            took = time.monotonic() - begun
            claim("L42 clients that stay and ask nothing hold it up for no longer than 5 s", answer[0] == 200 and took < 5,
                  (answer, took))
            for one in crowd:
                one.close()
            report = json.loads(subprocess.run([MWSTAT, str(process.pid), "--json"], stdout=subprocess.PIPE, check=False,
                                               timeout=LIMIT).stdout)[0]["jobs"][0]
            claim("mwstat shows the job", (report["run"], report["round"], report["nodes"], report["restarts"],
                                           report["verdicts"]) == ("probed", 1, 1, 0, []) and
                  [(w["rank"], w["state"], w["starts"]) for w in report["workers"]] == [(0, "runs", 1), (1, "runs", 1)] and
                  all(not is_gone(w["pid"]) for w in report["workers"]), report)
            text = subprocess.run([MWSTAT, str(process.pid)], stdout=subprocess.PIPE, check=False, timeout=LIMIT).stdout
            claim("mwstat says it in words", b"job probed: round 1, node 0 of 1, 2 workers in all, 0 restarts" in text, text)
            process.terminate()
            claim("L42 while they are ended it is 503, with the reason",
                  until(lambda: probe(port) == (503, "signal 15 has ended the job\n")), probe(port))
            # One that comes within 0.1 s would be the same order.
            time.sleep(0.3)
            process.terminate()
            finish(process)
            claim("L42 and after the job no process answers", probe(port)[0] is None)
        finally:
            process.kill()
            finish(process)
    port = free_port()
    process = start("--no-python", "sleep", "60", environment={**CLEAN, "TORCHELASTIC_HEALTH_CHECK_PORT": str(port)})
    claim("L42 torchrun's variable names the port", until(lambda: probe(port)[0] == 200))
    code, out, err = shell("echo x", f"--health-endpoint=127.0.0.1:{port}")
    claim("a port that is taken is told of, and ends no job", code == 0 and out == "x\n" and
          f"health endpoint 127.0.0.1:{port}: Address already in use" in err, (code, err))
    process.terminate()
    finish(process)
    for wrong in ("x:y", "0", "70000", "127.0.0.1", "localhost:80"):
        code, out, err = shell("echo x", f"--health-endpoint={wrong}")
        claim(f"a health endpoint at {wrong} is refused, in one line, and starts nothing", (code, out) == (2, "") and
              err == f'mwrun: --health-endpoint: "{wrong}" was given: expected PORT or ADDRESS:PORT\n', (code, out, err))


def console():
    with tempfile.TemporaryDirectory() as folder:
        logs = ["--tee=1", f"--log-dir={folder}"]
        _, out, err = shell("echo a long line; sleep 0.3; echo b > /dev/stdout; sleep 0.3; echo c", *logs)
        claim("L34 a file that its worker cuts is shown on", out.split() == "[default0]:a long line [default0]:b "
              "[default0]:c".split(), out + err)
        writes_on = subprocess.run([PROGRAM, *logs, "--no-python", "sh", "-c", "setsid yes & sleep 0.1; exit 3"],
                                   env=CLEAN, stdout=subprocess.DEVNULL, timeout=LIMIT, check=False)
        claim("L32 a descendant that writes on does not keep the worker's end from being seen",
              writes_on.returncode == 1)
        told = os.path.join(folder, "told")
        never_read, full = os.pipe()
        process = subprocess.Popen(
            [PROGRAM, *logs, "--nproc-per-node=2", "--no-python", "sh", "-c",
             f"if [ $RANK = 0 ]; then while [ ! -e {told}.ready ]; do sleep 0.02; done; "
             f"head -c 300000 /dev/zero | tr '\\0' '\\n'; exit 3; fi; trap 'echo > {told}; exit 0' TERM; "
             f"echo > {told}.ready; while :; do sleep 0.05; done"], env=CLEAN, stdout=full, stderr=subprocess.PIPE,
            start_new_session=True)
        try:
            claim("a console that is stuck does not keep the others from being ended",
                  until(lambda: os.path.exists(told)))
            # All of the job has ended: one signal is the first, and the other does not wait for the console.
            claim("nor the end, after two signals", until(lambda: process.send_signal(signal.SIGTERM) or
                                                          process.poll() is not None))
        finally:
            process.kill()
            process.communicate()
            os.close(full)
            os.close(never_read)
        os.remove(told)
        read_late, full = os.pipe()
        process = subprocess.Popen(
            [PROGRAM, "--nproc-per-node=2", "--no-python", "sh", "-c", "if [ $RANK = 0 ]; then "
             f"head -c 70000 /dev/zero & sleep 0.3; exit 3; fi; exec 2> /dev/null; trap 'echo > {told}; exit 0' TERM; "
             "while :; do sleep 0.05; done"], env=CLEAN, stdout=full, stderr=full, start_new_session=True)
        os.close(full)
        try:
            claim("nor does one on which messages are stuck", until(lambda: os.path.exists(told)))
            with os.fdopen(read_late, "rb") as all_of_it:
                messages = all_of_it.read()
            claim("which come when it goes on", process.wait(LIMIT) == 1 and b"exited with code 3" in messages,
                  messages[-300:])
        finally:
            process.kill()
            process.wait()


FIRST = """
============================================================
sh FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : TIME
  host      : HOST
  rank      : 0 (local_rank: 0)
  exitcode  : 5 (pid: PID)
  error_file: FILE
  traceback : RuntimeError: no model
  second line
============================================================
"""


def error_files():
    def script(text):
        return f"printf '%s' '{text}' > $TORCHELASTIC_ERROR_FILE; exit 5"

    both = ('{"message": {"message": "x", "extraInfo": {"py_callstack": "RuntimeError: no model\\nsecond line", '
            '"timestamp": "1700000000"}}}')
    _, _, err = shell(script(both))
    seen = re.sub(r"20\d\d-\S+", "TIME", err[err.find("\n="):])
    seen = re.sub(r"host      : \S+", "host      : HOST", re.sub(r"pid: \d+", "pid: PID", seen))
    seen = re.sub(r"error_file: \S+/error.json", "error_file: FILE", seen)
    claim("L36, L37 the summary is torchrun's, byte for byte", seen == FIRST, seen)
    _, _, err = shell(script('{"message": "plain", "timestamp": 1700000000}'))
    claim("L36 the short form is read", "traceback : plain" in err and "2023-11-1" in err, err)
    _, _, err = shell(script('{"message": {"message": "half'))
    claim("L36 half of a file is named, and ends nothing else", "is no JSON object with a message" in err and
          "exitcode  : 5" in err, err)
    _, _, err = shell(script('{"message": "plain", "timestamp": 9223372036854775807}'))
    claim("L36 a time beyond all years is not shown", re.search(r"time      : 20\d\d-", err), err)
    _, _, err = shell("ln -s /etc/passwd $TORCHELASTIC_ERROR_FILE; exit 5")
    claim("L36 a link is not followed", "is a symbolic link" in err and "root:" not in err, err)
    _, _, err = shell("head -c 10000000 /dev/zero > $TORCHELASTIC_ERROR_FILE; exit 5")
    claim("L36 10 MB are not read", "has 10000000 bytes" in err, err)
    _, _, err = shell("mkfifo $TORCHELASTIC_ERROR_FILE; exit 5")
    claim("L36 nor a pipe", "is no regular file" in err, err)
    with tempfile.TemporaryDirectory() as folder:
        own = os.path.join(folder, "own.json")
        shell(script(both), environment={**CLEAN, "TORCHELASTIC_ERROR_FILE": own})
        with open(own, encoding="utf-8") as file:
            message = json.load(file)["message"]
        claim("L38 the root cause is handed on, with the exit code", message["errorCode"] == 5, message)
    code, _, err = shell("[ $RANK = 1 ] && sleep 0.3 && exit 9; exec sleep 60", "--nproc-per-node=4")
    claim("L39 those that were ended are no causes", code == 1 and err.count("exitcode") == 1 and
          "exitcode  : 9" in err, err)


def programs():
    code, out, err = run("--nproc-per-node=4", "--no-python", LAUNCHED)
    sums = re.findall(r"rank (\d) of 4, local \d of 4, node 0 of 1, mwrun: the sum is 10", out)
    claim("a program of ours finds its place", code == 0 and sorted(sums) == list("0123"), (code, out, err))
    code, out, err = run("--nproc-per-node=2", "--max-restarts=1", "--no-python", LAUNCHED, "die-once", "1")
    claim("P6 a member that dies in the first attempt is no matter in the second", code == 0 and
          len(re.findall("the sum is 3$", out, re.M)) >= 2, (code, out, err))
    code, _, err = run("--nproc-per-node=2", "--no-python", LAUNCHED, "throw", "1")
    claim("P4 the summary shows its exception", code == 1 and "the model cannot be loaded" in err, err)
    code, _, err = run("--no-python", "./no-such-program", "--max-restarts=3")
    claim("a program that is missing is named at once", code == 1 and "no-such-program" in err and
          "no such file" in err, err)


GROWS = r"""
n=$TORCHELASTIC_RESTART_COUNT
if [ $n = 20 ] || [ $n = 100 ]; then
  echo AT $n $(ls /proc/$PPID/fd | wc -l) $(ls /proc/$PPID/task | wc -l) $(awk '/VmRSS/ { print $2 }' /proc/$PPID/status)
fi
[ $n = 100 ]
"""


def many_restarts():
    with tempfile.TemporaryDirectory() as logs:
        code, out, err = run("--nproc-per-node=1", "--max-restarts=100", f"--log-dir={logs}", "--tee=3", "--no-python", "sh",
                             "-c", GROWS)
        seen = {int(n): [int(each) for each in rest] for n, *rest in re.findall(r"AT (\d+) (\d+) (\d+) (\d+)", out)}
        claim("L30 a hundred restarts come to their end", code == 0 and sorted(seen) == [20, 100], (code, out, err[-2000:]))
        if sorted(seen) == [20, 100]:
            # Files that are still shown are open.
            claim("L30 with no more descriptors", seen[100][0] < seen[20][0] + 40, seen)
            claim("L30 and no more threads", seen[100][1] == seen[20][1], seen)
            claim("L30 and no more memory", seen[100][2] < seen[20][2] + 1024, seen)
        claim("L30 their files are kept", len(os.listdir(os.path.join(logs, os.listdir(logs)[0]))) >= 101, os.listdir(logs))


def beside_torchrun():
    words = shlex.split(os.environ.get("MANYWORLDS_TORCHRUN", "torchrun"))
    if not os.environ.get("MANYWORLDS_TEST_LONG") or not shutil.which(words[0]):
        print("skipped: torchrun beside mwrun (MANYWORLDS_TEST_LONG, and torchrun or MANYWORLDS_TORCHRUN)")
        return
    options = ["--standalone", "--nproc-per-node=2", "--no-python", "env"]
    theirs = subprocess.run([*words, *options], env=CLEAN, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                            timeout=LIMIT, check=False).stdout
    # Newer ones leave what torchrun tells itself.
    own = {"TORCH_SHOW_CPP_STACKTRACES", "TORCHELASTIC_SIGNALS_TO_HANDLE"}
    names = {line.partition("=")[0] for line in theirs.splitlines() if SETS.match(line)} - own
    ours = {name for name in variables_of(*options[:2])[1] if SETS.match(name) and "MANYWORLDS" not in name}
    claim("L4 torchrun itself sets the same variables", names == ours, names ^ ours)


for part in (environment, python, lives_and_deaths, one_worker_alone, signals, starters, descendants, files, events, stuck_files, health, console,
             error_files, programs, many_restarts, beside_torchrun):
    part()
claim_nothing_is_left()
sys.exit(bool(failures))
