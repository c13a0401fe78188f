#!/usr/bin/env python3
"""A job on this machine, as processes: its instances, its master, its agent and itself are killed.

usage: job_test.py MWGRAPH ROLE_USER JOB_CLIENT_USER
"""
import json
import os
import re
import signal
import subprocess
import sys
import time

from one_host import LIMIT, MWGRAPH, ROLE_USER, Job, goal, gone, graph, lives, parent_of, run, until

JOB_CLIENT_USER = os.path.abspath(sys.argv[3])


def descriptors_of(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def a_killed_instance_alone_is_replaced_and_its_edges_form_again():
    """graph B35, B36, B54, B64: neighbours keep their processes, also at the second and third death; a killed master
    restarts nothing."""
    job = Job("edges", graph("edges"))
    before = after = job.until_ready(3)
    (master,) = job.children("master")
    others = [master, parent_of(before["decode.0"]), before["prefill.0"], before["decode.0"]]
    job.log_says("prefill.0", "peer_came decode", 2)
    had = []
    seen = whole = 0.0
    for incarnation in (1, 2, 3):
        died = time.time()
        os.kill(after["decode.1"], signal.SIGKILL)
        after = job.until_ready(3, {"decode.1": after["decode.1"]})
        for kept in ("prefill.0", "decode.0"):
            assert after[kept] == before[kept], kept
        seen = max(seen, job.event(f"decode.1: incarnation {incarnation} is over") - died)
        whole = max(whole, job.event(f"decode.1: incarnation {incarnation + 1} is ready") - died)
        job.log_says("prefill.0", "peer_back decode.1", incarnation)
        # After the first death: what is opened once, at any time until then, stays open.
        had = had or [descriptors_of(pid) for pid in others]
    # Deaths cost those that go on nothing.
    until(lambda: all(descriptors_of(pid) <= count for pid, count in zip(others, had)),
          lambda: f"more is open than {had}: {[descriptors_of(pid) for pid in others]}")
    job.log_says("prefill.0", "peer_lost decode.1")
    # What the first incarnation has recorded, the second one knows.
    job.log_says("decode.1", "lives 1")
    # Several tasks that record one key at a time are all answered.
    job.log_says("decode.1", "recorded thrice")
    assert "peer_lost decode.0" not in job.ask("logs", "prefill.0").stdout

    line = [MWGRAPH, "picture", "edges.toml", "--live", "--folder", os.path.abspath("jobs")]
    picture = subprocess.run(line, capture_output=True, text=True, timeout=LIMIT).stdout
    assert "decode.1 ready on here, incarnation 4" in picture, picture

    began = time.monotonic()
    os.kill(master, signal.SIGKILL)
    until(lambda: job.status().get("term") == 2, "no master has followed")
    back = time.monotonic() - began
    assert job.until_ready(3) == after
    why = job.ask("why", "decode.1").stdout
    assert "upstream prefill (edge kv): prefill.0 is ready" in why, why
    assert job.end() == 0
    gone(after.values())
    assert "leaves" in job.ask("logs", "decode.0").stdout
    assert job.status()["stage"] == "stopped"
    return ", ".join([goal("a death was seen after", seen, 0.1), goal("the edge was whole after", whole, 1),
                      goal("another master led after", back, 1)])


def what_was_recorded_outlives_masters():
    """Facts that no master had recorded when it died are told to the next one."""
    job = Job("facts", graph("facts"))
    before = job.until_ready(3)
    for _ in range(3):
        (master,) = job.children("master")
        count = job.count("decode.0")
        os.kill(master, signal.SIGKILL)
        until = time.monotonic() + LIMIT
        while job.count("decode.0") <= count + 1 or job.children("master") in ([], [master]):
            assert time.monotonic() < until, f"nothing is recorded after {count}"
            time.sleep(0.02)
    os.kill(before["decode.0"], signal.SIGKILL)
    job.until_ready(3, {"decode.0": before["decode.0"]})
    lines = job.ask("logs", "decode.0").stdout.splitlines()
    (again,) = [int(line.split()[2]) for line in lines if line.startswith("count was") and line != "count was 0"]
    with open(f"jobs/{job.name}/logs/decode.0/1.log", encoding="utf-8") as file:
        told = [int(line.split()[1]) for line in file if line.startswith("count ") and "was" not in line]
    assert again >= told[-1], (again, told[-1])
    assert job.end() == 0


# The role has a child, and a process in a session of its own, the parent of which has ended.
TREE = """\
[role.tree]
run = ["/bin/sh", "-c", "sleep 1000 & echo has $!; (setsid sleep 1000 & echo has $!); echo all; exec sleep 1000"]
"""


def a_killed_agent_takes_its_processes_and_their_children_with_it_and_they_are_placed_again():
    """graph B74, G-a: also a process that has left its parent and its session."""
    job = Job("agents", graph("agents", TREE))
    before = job.until_ready(4)
    job.log_says("tree.0", "all")
    children = [int(line.split()[1]) for line in job.log_of("tree.0", 1).splitlines() if line.startswith("has ")]
    assert len(children) == 2 and all(lives(pid) for pid in children), children
    assert [parent_of(pid) == before["tree.0"] for pid in children] == [True, False], children
    # Not its guard, which has the same command line.
    began = time.monotonic()
    os.kill(parent_of(before["decode.0"]), signal.SIGKILL)
    gone([*before.values(), *children])
    took = time.monotonic() - began
    after = job.until_ready(4, before)
    assert job.end() == 0
    gone(after.values())
    return goal("they were gone after", took, 1)


def a_master_that_dies_while_it_takes_agents_starts_nothing_twice():
    """graph B68, G-a: at several moments, from an agent's first word to its last order."""
    starts = os.path.abspath("starts")
    run = f'run = ["/bin/sh", "-c", "echo $MANYWORLDS_INSTANCE $MANYWORLDS_INCARNATION >> {starts}; exec {ROLE_USER}"]'
    text = graph("taken").replace(f'run = ["{ROLE_USER}"]', run)
    text += '[[place]]\nrule = "spread"\nroles = ["prefill", "decode"]\n'
    job = Job("taken", text, more=["--nodes", "3"])
    until(lambda: os.path.exists("jobs/taken/job.json"), "the job cannot be found")
    agents = {node: job.agent(node) for node in "bc"}
    longest = 0.0
    try:
        for moment in (0.0, 0.05):
            time.sleep(moment)
            job.kill_master()
        before = job.until_ready(3)
        for moment in (0.0, 0.02, 0.04, 0.08):
            status = job.status()
            term, places = status["term"], {i["instance"]: i["node"] for i in status["instances"]}
            node = next((n for n in "bc" if n in places.values()), "b")
            lost = {instance: before[instance] for instance in places if places[instance] == node}
            agents[node].kill()
            agents[node].wait(LIMIT)
            agents[node] = job.agent(node)
            time.sleep(moment)
            began = time.monotonic()
            assert job.kill_master()
            until(lambda: job.status().get("term", 0) > term, "no master has followed")
            longest = max(longest, time.monotonic() - began)
            after = job.until_ready(3, lost)
            assert {k: v for k, v in after.items() if k not in lost}.items() <= before.items(), (before, after)
            before = after
        with open(starts, encoding="ascii") as file:
            started = file.read().splitlines()
        assert len(started) == len(set(started)), started
        assert job.end() == 0
    finally:
        for agent in agents.values():
            agent.kill()
            agent.wait(LIMIT)
    gone(before.values())
    return goal("a master was back after at most", longest, 1)


def what_controls_others_is_asked_before_they_are_started_again():
    """graph B44, B45, B49: it copes with the loss of decode.1, and not with that of decode.0, which costs the job a
    restart, and then its end. Its own death costs those that it controls nothing."""
    job = Job("asked", f"""\
name = "asked"
restart = {{ tries = 1 }}
[role.trainer]
run = ["{ROLE_USER}", "controls"]
ready = "told"
[role.decode]
run = ["{ROLE_USER}"]
count = 2
ready = "told"
controller = "trainer"
[edge.kv]
from = "trainer"
to = "decode"
""")
    first = job.until_ready(3)
    os.kill(first["decode.1"], signal.SIGKILL)
    second = job.until_ready(3, {"decode.1": first["decode.1"]})
    assert second == {**first, "decode.1": second["decode.1"]}
    assert "asked about decode.1" in job.log_of("trainer.0", 1)

    os.kill(first["trainer.0"], signal.SIGKILL)
    third = job.until_ready(3, {"trainer.0": first["trainer.0"]})
    assert third == {**second, "trainer.0": third["trainer.0"]}
    os.kill(third["decode.1"], signal.SIGKILL)
    fourth = job.until_ready(3, {"decode.1": third["decode.1"]})
    assert fourth == {**third, "decode.1": fourth["decode.1"]}
    assert "asked about decode.1" in job.log_of("trainer.0", 2)
    assert job.status()["job_restarts"] == 0

    os.kill(fourth["decode.0"], signal.SIGKILL)
    fifth = job.until_ready(3, fourth)
    assert "asked about decode.0" in job.log_of("trainer.0", 2)
    assert job.status()["job_restarts"] == 1
    os.kill(fifth["decode.0"], signal.SIGKILL)
    assert job.process.wait(LIMIT) == 1
    status = job.status()
    assert status["stage"] == "stopped" and status["job_restarts"] == 1, status
    for told in ("decode.0: ", "SIGKILL", "its controller trainer.0 cannot go on without it", "started again 1 times"):
        assert told in status["why"], status["why"]
    gone(fifth.values())


def what_is_lost_on_three_nodes_is_two_recoveries():
    """graph B37, B38, over three agents: of an edge that is aligned and one of a role with itself, those alone that had
    the lost ones as peers hear of it. The replacement of one is lost while it starts."""
    slow = f"test $MANYWORLDS_INCARNATION = 2 && sleep 1000; exec {ROLE_USER}"
    job = Job("aligned", f"""\
name = "aligned"
[role.upper]
run = ["/bin/sh", "-c", "{slow}"]
count = 3
ready = "told"
[role.lower]
run = ["{ROLE_USER}"]
count = 3
ready = "told"
[edge.columns]
from = "upper"
to = "lower"
shape = "aligned"
[edge.row]
from = "lower"
to = "lower"
shape = "pairs"
[[place]]
rule = "spread"
roles = ["upper", "lower"]
""", more=["--nodes", "3"])
    until(lambda: os.path.exists("jobs/aligned/job.json"), "the job cannot be found")
    agents = [job.agent(node) for node in "bc"]
    before = job.until_ready(6)
    nodes = [each["node"] for each in job.status()["instances"]]
    assert all(nodes.count(node) == 2 for node in ("here", "b", "c")), nodes
    peers = {f"upper.{n}": {f"lower.{n}"} for n in range(3)}
    for n in range(3):
        peers[f"lower.{n}"] = {f"upper.{n}", *(f"lower.{other}" for other in range(3) if other != n)}
    for instance, its in peers.items():
        for peer in its:
            job.log_says(instance, f"peer_came {peer}")

    lost = {"upper.0": before["upper.0"], "lower.1": before["lower.1"]}
    for pid in lost.values():
        os.kill(pid, signal.SIGKILL)
    job.until_ready(5, {"lower.1": lost["lower.1"]})
    until(lambda: job.of("upper.0")["incarnation"] == 2 and job.of("upper.0").get("pid"), job.status)
    os.kill(job.of("upper.0")["pid"], signal.SIGKILL)
    after = job.until_ready(6, lost)
    assert {k: v for k, v in after.items() if k not in lost}.items() <= before.items(), (before, after)
    for instance in set(peers) - set(lost):
        for peer in peers[instance] & set(lost):
            job.log_says(instance, f"peer_back {peer}")
        told = {line.split()[1] for line in job.log_of(instance, 1).splitlines() if line.startswith("peer_lost")}
        assert told == peers[instance] & set(lost), (instance, told)
    ends = {each["instance"]: (each["incarnation"], each["failures"]) for each in job.status()["instances"]}
    assert ends == {instance: (1, 0) for instance in peers} | {"upper.0": (3, 2), "lower.1": (2, 1)}, ends
    assert job.end() == 0
    assert [agent.wait(LIMIT) for agent in agents] == [0, 0]
    gone(after.values())


def what_restarts_together_and_loses_two_forms_one_new_epoch():
    """graph B35, B39, G-e: two of four die at a time. They are one recovery and one failure; the next sums are right."""
    job = Job("together", f"""\
name = "together"
[role.rank]
run = ["{ROLE_USER}"]
count = 4
ready = "told"
[role.other]
run = ["{ROLE_USER}"]
ready = "told"
[edge.ranks]
from = "rank"
to = "rank"
shape = "group"
on_loss = "restart_together"
""")
    def epochs(rank, incarnation):
        lines = job.log_of(f"rank.{rank}", incarnation).splitlines()
        return [line.split()[-1] for line in lines if line.startswith("sums are right")]
    before = job.until_ready(5)
    for rank in range(4):
        job.log_says(f"rank.{rank}", "sums are right")
    for rank in (1, 2):
        os.kill(before[f"rank.{rank}"], signal.SIGKILL)
    after = job.until_ready(5, {k: v for k, v in before.items() if k != "other.0"})
    assert after["other.0"] == before["other.0"]
    for rank in range(4):
        until(lambda: epochs(rank, 2), f"rank {rank} has no sum")  # noqa: B023
    own = [epochs(rank, 2) for rank in range(4)]
    assert len(own[0]) == 1 and own == [own[0]] * 4 and own[0] != epochs(0, 1), own
    ends = [job.of(f"rank.{rank}") for rank in range(4)]
    assert [each["incarnation"] for each in ends] == [2] * 4, ends
    assert sum(each["failures"] for each in ends) == 1, ends
    assert job.end() == 0
    gone(after.values())


def group_kinds():
    """Returns where control groups that limit memory may be made: by the parent's folder, the file of the limit, and
    the one that counts kills. In version 2 groups with processes have no such children, but their parents have."""
    kinds = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.oom_control")]
    with open("/proc/self/cgroup", encoding="utf-8") as file:
        own = [line.rstrip("\n")[len("0::"):] for line in file if line.startswith("0::/")]
    for path in own:
        folder = os.path.normpath(f"/sys/fs/cgroup/{path}")
        parents = [folder] if path == "/" else [folder, os.path.dirname(folder)]
        kinds += [(parent, "memory.max", "memory.events") for parent in parents]
    return kinds


class SmallGroup:
    """A control group with little memory, for the programs of a job. `enter` begins their command lines; it is empty
    where no such group can be made."""

    def __init__(self):
        self.path = ""
        self.enter = []
        for kind in group_kinds():
            if self.is_made(*kind):
                break
            self.remove()

    def is_made(self, parent, limit, counts):
        self.path = f"{parent}/mw-test-{os.getpid()}"
        enter = ["/bin/sh", "-c", f'echo $$ > {self.path}/cgroup.procs && exec "$@"', "sh"]
        try:
            os.mkdir(self.path)
            if not all(os.path.exists(f"{self.path}/{each}") for each in (limit, counts)):
                return False
            with open(f"{self.path}/{limit}", "w", encoding="ascii") as file:
                file.write(str(256 << 20))
            if os.path.exists(f"{self.path}/memory.swap.max"):
                with open(f"{self.path}/memory.swap.max", "w", encoding="ascii") as file:
                    file.write("0")
        except OSError:
            return False
        # It may be that processes of this user cannot be moved there.
        if subprocess.run([*enter, "/bin/true"], stderr=subprocess.DEVNULL, timeout=LIMIT).returncode == 0:
            self.enter = enter
        return bool(self.enter)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()

    def remove(self):
        def is_removed():
            try:
                # What is no control group, where version 2 is mounted elsewhere, has no such file.
                if os.path.exists(f"{self.path}/cgroup.procs"):
                    with open(f"{self.path}/cgroup.procs", encoding="ascii") as file:
                        for pid in file:
                            os.kill(int(pid), signal.SIGKILL)
                os.rmdir(self.path)
            except (FileNotFoundError, NotADirectoryError):
                return True
            except OSError:
                return False
            return True
        until(is_removed, f"{self.path} is in use")


def ended_in(small):
    starts = os.path.abspath("always")
    kinds = {
        "well": ("exit 0", "exited with code 0"),
        "badly": ("exit 3", "exited with code 3"),
        "killed": ("kill -9 $$", "was ended by SIGKILL"),
        "faulty": ("ulimit -c 0; kill -11 $$", "was ended by SIGSEGV"),
    }
    if small.enter:
        kinds["hungry"] = (f"exec {sys.executable} -c '[1] * (1 << 28)'", "was killed by the kernel for want of memory")
    else:
        print("a kill for want of memory was not tried: no control group that limits memory can be made here")
    text = 'name = "ends"\n'
    for role, (words, _) in kinds.items():
        text += f"""\
[role.{role}]
run = ["/bin/sh", "-c", "{words}"]
count = {{ min = 0, start = 1, max = 1 }}
restart = {{ when = "never" }}
"""
    text += f"""\
[role.thrown]
run = ["{ROLE_USER}", "throws"]
count = {{ min = 0, start = 1, max = 1 }}
restart = {{ when = "never" }}
[role.always]
run = ["/bin/sh", "-c", "date +%s%N >> {starts}; test $(wc -l < {starts}) -gt 3 || exit 0; exec sleep 1000"]
restart = {{ when = "always", tries = 3 }}
"""
    job = Job("ends", text, through=small.enter)
    until(lambda: job.pids().get("always.0") and job.of("always.0")["incarnation"] == 4, job.status)
    # What it has thrown is said by its error file.
    kinds["thrown"] = (None, ": std::runtime_error: no pages are left; its output is in")
    for role, (_, told) in kinds.items():
        until(lambda: told in job.of(f"{role}.0").get("last_end", ""), job.status)  # noqa: B023
        assert job.of(f"{role}.0")["incarnation"] == 1, job.status()
    assert (job.of("well.0")["last_code"], job.of("badly.0")["last_code"]) == (0, 3)
    always = job.of("always.0")
    assert "exited with code 0" in always["last_end"] and always["failures"] == 3, always
    with open(starts, encoding="ascii") as file:
        times = [int(line) / 1e9 for line in file]
    pauses = [b - a for a, b in zip(times, times[1:])]
    assert all(pause > least for pause, least in zip(pauses, (0.045, 0.095, 0.195))), pauses
    assert job.end() == 0
    return "pauses of " + ", ".join(f"{pause * 1000:.0f}" for pause in pauses) + " ms"


def what_ended_an_instance_is_told_apart():
    """graph B47, B48: also what is always started again, each time after a longer pause."""
    with SmallGroup() as small:
        return f"{ended_in(small)}, memory limited at {small.path if small.enter else 'no place'}"


def a_job_ends_with_the_code_of_its_driver():
    """graph B11, B46."""
    job = Job(
        "drives",
        graph(
            "drives",
            '[role.main]\nrun = ["/bin/sh", "-c", "exit 3"]\nafter = ["decode"]\n'
            'driver = true\nrestart = { when = "never" }\n',
        ),
    )
    assert job.process.wait(LIMIT) == 3
    status = json.loads(job.ask("status", "--json").stdout)
    (main,) = [i for i in status["instances"] if i["instance"] == "main.0"]
    assert "exited with code 3" in main["last_end"], main


def a_job_ends_with_the_code_of_its_driver_also_by_a_later_master():
    """graph B63: those who wait for the end wait on while the master dies."""
    main = '[role.main]\nrun = ["/bin/sh", "-c", "while [ ! -e ends ]; do sleep 0.05; done; exit 7"]\ndriver = true\n'
    job = Job("waits", graph("waits", main + 'restart = { when = "never" }\n'))
    job.until_ready(4)
    line = [MWGRAPH, "wait", "waits", "--folder", os.path.abspath("jobs")]
    with subprocess.Popen(line) as waits:
        term = job.status()["term"]
        assert job.kill_master()
        until(lambda: job.status().get("term", 0) > term, "no master has followed")
        open("ends", "w", encoding="ascii").close()
        assert waits.wait(LIMIT) == 7 == job.process.wait(LIMIT)


# A program that finds the others by torchrun's variables alone, as init_process_group("env://") does. It leaves what it
# was told, and says when it has met all of them.
RANK = """
import os, socket, sys, time
told, rank, size = os.environ, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
where = told["MASTER_ADDR"], int(told["MASTER_PORT"])
name = os.path.join(sys.argv[1], f"{rank}.{told['MANYWORLDS_INCARNATION']}")
with open(name + ".new", "w", encoding="utf-8") as file:
    file.write(chr(0).join(f"{key}={value}" for key, value in told.items()))
os.rename(name + ".new", name)
met, end = [], time.monotonic() + 60
if rank == 0:
    with socket.create_server(where) as own:
        own.settimeout(60)
        met = [own.accept()[0] for _ in range(size - 1)]
while rank > 0 and not met:
    try:
        met = [socket.create_connection(where)]
    except OSError:
        assert time.monotonic() < end
        time.sleep(0.05)
open(name + ".met", "w").close()
time.sleep(1000)
"""


def what_a_role_is_among_others_is_told_to_its_instances():
    """graph B2: four instances over two agents are told what torchrun tells, and meet by that; anew after a restart."""
    told = os.path.abspath("told")
    os.mkdir(told)
    with open("rank.py", "w", encoding="utf-8") as file:
        file.write(RANK)
    text = f"""name = "ranks"
[role.trainer]
run = ["{sys.executable}", "{os.path.abspath('rank.py')}", "{told}"]
count = 4
[edge.ring]
from = "trainer"
to = "trainer"
shape = "group"
on_loss = "restart_together"
[[place]]
rule = "spread"
roles = ["trainer"]
"""
    job = Job("ranks", text, more=["--nodes", "2"])
    until(lambda: os.path.exists("jobs/ranks/job.json"), "the job cannot be found")
    agent = job.agent("b")

    def told_to_all(incarnation):
        """Returns the variables of each rank by its number, once all have met."""
        names = [f"{told}/{rank}.{incarnation}" for rank in range(4)]
        until(lambda: all(os.path.exists(name + ".met") for name in names), lambda: str(sorted(os.listdir(told))))
        texts = [open(name, encoding="utf-8").read() for name in names]
        return [dict(each.split("=", 1) for each in text.split("\0")) for text in texts]

    before = job.until_ready(4)
    nodes = {i["instance"]: i["node"] for i in job.status()["instances"]}
    in_order = list(dict.fromkeys(nodes[f"trainer.{rank}"] for rank in range(4)))
    assert sorted(in_order) == ["b", "here"], nodes
    first = told_to_all(1)
    port = first[0]["MASTER_PORT"]
    assert 20000 <= int(port) < 29500, port
    for rank, given in enumerate(first):
        node = nodes[f"trainer.{rank}"]
        local = [n for n in range(4) if nodes[f"trainer.{n}"] == node]
        want = {"RANK": rank, "WORLD_SIZE": 4, "LOCAL_RANK": local.index(rank), "LOCAL_WORLD_SIZE": 2,
                "GROUP_RANK": in_order.index(node), "GROUP_WORLD_SIZE": 2, "ROLE_NAME": "trainer", "ROLE_RANK": rank,
                "ROLE_WORLD_SIZE": 4, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "ranks",
                "TORCHELASTIC_RESTART_COUNT": 0, "TORCHELASTIC_MAX_RESTARTS": 3,
                "TORCHELASTIC_USE_AGENT_STORE": "False",
                "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", 1),
                "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", 1), "MANYWORLDS_INSTANCE": f"trainer.{rank}",
                "MANYWORLDS_NODE": node, "MANYWORLDS_RUN_ID": "ranks", "MANYWORLDS_INCARNATION": 1}
        found = {name: given.get(name) for name in want}
        assert found == {name: str(value) for name, value in want.items()}, found
    # They start again together, and meet elsewhere.
    os.kill(before["trainer.2"], signal.SIGKILL)
    second = told_to_all(2)
    ports = {each["MASTER_PORT"] for each in second}
    assert len(ports) == 1 and ports != {port}, (ports, port)
    assert {each["TORCHELASTIC_RESTART_COUNT"] for each in second} == {"1"}
    assert job.end() == 0
    assert agent.wait(LIMIT) == 0


def numbers_in(text):
    """Returns the CPUs of a list as the kernel prints it, "0-3,8"."""
    ranges = [each.split("-") for each in text.strip().split(",")]
    return {number for each in ranges for number in range(int(each[0]), int(each[-1]) + 1)}


def what_an_instance_sees_and_runs_on_is_what_its_placement_gave():
    """graph B2: of what is declared of this machine each has its GPU, and its CPU where there are two."""
    ours = os.sched_getaffinity(0)
    with open("devices.json", "w", encoding="ascii") as file:
        json.dump({"memory": "8GiB", "labels": ["fast"], "gpus": [{"uuid": "GPU-7a"}, {"uuid": "GPU-9b"}]}, file)
    says = "echo sees $CUDA_VISIBLE_DEVICES; grep Cpus_allowed_list: /proc/self/status; exec sleep 1000"
    job = Job("pinned", f"""\
name = "pinned"
[role.worker]
run = ["/bin/sh", "-c", "{says}"]
count = 2
needs = {{ gpus = 1, cpus = {1 if len(ours) > 1 else 0}, memory = "1GiB", labels = ["fast"] }}
""", more=["--devices", "devices.json"])
    job.until_ready(2)
    devices, cpus = [], []
    for instance in ("worker.0", "worker.1"):
        job.log_says(instance, "Cpus_allowed_list:")
        words = dict(line.split(maxsplit=1) for line in job.log_of(instance, 1).splitlines())
        placed = job.of(instance)
        assert [words["sees"]] == placed["gpus"], (words, placed)
        assert numbers_in(words["Cpus_allowed_list:"]) == set(placed.get("cpus", ours)), (words, placed)
        devices.append(words["sees"])
        cpus.append(frozenset(placed.get("cpus", [])))
    assert sorted(devices) == ["GPU-7a", "GPU-9b"], devices
    if len(ours) > 1:
        assert [len(each) for each in cpus] == [1, 1] and len(set(cpus)) == 2 and cpus[0] | cpus[1] <= ours, cpus
    assert job.end() == 0


def a_job_that_is_run_ends_with_its_command_and_one_that_is_started_does_not():
    """graph B73."""
    job = Job("attached", graph("attached"))
    pids = job.until_ready(3)
    all_of_it = [*pids.values(), *job.children("master"), *job.children("agent")]
    began = time.monotonic()
    job.process.kill()
    job.process.wait(LIMIT)
    gone(all_of_it)
    took = time.monotonic() - began

    job = Job("apart", graph("apart"), how="start")
    assert job.process.wait(LIMIT) == 0
    pids = job.until_ready(3)
    twice = Job("apart", graph("apart"))
    assert twice.process.wait(LIMIT) == 1  # its name is taken
    assert job.until_ready(3) == pids
    assert job.ask("stop").returncode == 0
    assert job.ask("wait").returncode == 0
    gone(pids.values())
    # What has ended is found, too, and stopping it is no error.
    assert job.ask("wait").returncode == 0
    assert job.ask("stop").returncode == 0
    assert "stopped (mwgraph stop)" in job.ask("status").stdout
    return goal("a job that is run was gone after", took, 1)


def a_job_that_is_run_ends_with_its_terminal():
    """graph B73: a terminal that is closed sends SIGHUP to what runs in it."""
    # A test that runs under nohup ignores this signal, and what it starts would, too.
    own = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    job = Job("terminal", graph("terminal"))
    signal.signal(signal.SIGHUP, own)
    pids = job.until_ready(3)
    all_of_it = [*pids.values(), *job.children("master"), *job.children("agent")]
    job.process.send_signal(signal.SIGHUP)
    assert job.process.wait(LIMIT) != 0
    gone(all_of_it)


def what_watches_a_job_ends_with_it_and_shows_how_it_ended():
    job = Job("watched", graph("watched"))
    job.until_ready(3)
    watchers = []
    for command, how in (("status", "--watch"), ("events", "--follow")):
        line = [MWGRAPH, command, "watched", how, "--folder", os.path.abspath("jobs")]
        with open(f"watched.{command}.out", "w", encoding="utf-8") as out:
            watchers.append(subprocess.Popen(line, stdout=out, stderr=out))

    def seen():
        return [open(f"watched.{command}.out", encoding="utf-8").read() for command in ("status", "events")]
    until(lambda: all("decode.1" in text for text in seen()), lambda: str(seen()))
    assert "watched: stopped" not in seen()[0] and all(each.poll() is None for each in watchers), seen()
    assert job.end() == 0
    assert [each.wait(LIMIT) for each in watchers] == [0, 0], seen()
    tables, events = seen()
    last = tables.split("\x1b[H\x1b[2J")[-1]
    assert last.startswith("watched: stopped (mwgraph stop)"), tables
    assert "the job is stopped" in events.splitlines()[-1], events


def what_a_master_of_another_version_leaves_out_is_not_missed():
    os.makedirs("jobs/other", exist_ok=True)
    with open("other.toml", "w", encoding="utf-8") as file:
        file.write(graph("other"))
    for told in ('{"stage": "stopped"}', '{"stage": "stopped", "events": 1, "instances": {}, "nodes": null}'):
        with open("jobs/other/ended.json", "w", encoding="utf-8") as file:
            file.write(told)
        for command, code in (["status"], 0), (["events"], 0), (["why", "decode.0"], 2), (["wait"], 1):
            line = [MWGRAPH, command[0], "other", *command[1:], "--folder", os.path.abspath("jobs")]
            done = subprocess.run(line, capture_output=True, text=True, timeout=LIMIT)
            assert done.returncode == code, done
        line = [MWGRAPH, "picture", "other.toml", "--live", "--folder", os.path.abspath("jobs")]
        assert subprocess.run(line, capture_output=True, text=True, timeout=LIMIT).returncode == 0


def what_fits_nowhere_starts_nothing():
    """graph B5."""
    job = Job("large", graph("large").replace("count = 2", "needs = { cpus = 4096 }"))
    assert job.process.wait(LIMIT) == 1
    status = json.loads(job.ask("status", "--json").stdout)
    assert status["stage"] == "stopped" and "cpus" in status["why"].lower(), status["why"]
    assert not status["instances"]


def a_program_that_is_not_there_is_named():
    missing = '[role.main]\nrun = ["./none"]\nrestart = { when = "never" }\ndriver = true\n'
    job = Job("missing", f'name = "missing"\n{missing}')
    assert job.process.wait(LIMIT) != 0
    status = json.loads(job.ask("status", "--json").stdout)
    assert "./none" in status["why"] or "./none" in str(status["instances"]), status


def ends_at_once(name, run, *said):
    """Runs a job of two roles, one of which cannot be started, by the default budgets."""
    job = Job(name, f'name = "{name}"\n[role.other]\nrun = ["/bin/sleep", "1000"]\n[role.main]\nrun = ["{run}"]\n')
    assert job.process.wait(LIMIT) == 1
    status = json.loads(job.ask("status", "--json").stdout)
    for each in ("main.0 on node here", run, *said):
        assert each in status["why"], (each, status["why"])
    assert status["job_restarts"] == 0, status
    assert all(each["incarnation"] <= 1 for each in status["instances"]), status


def a_missing_program_ends_the_job_and_restarts_nothing():
    """graph B47: instance, node, cause, and what to do."""
    ends_at_once("none", "./none", "no such file or directory", 'correct the role\'s "run"')


def a_program_without_permission_ends_the_job_and_restarts_nothing():
    """graph B47."""
    with open("closed", "w", encoding="ascii") as file:
        file.write("#!/bin/sh\n")
    os.chmod("closed", 0o644)
    ends_at_once("closed", "./closed", "permission denied", "make it executable")


def a_role_that_always_dies_at_its_start_ends_with_its_last_end_and_its_log():
    """graph B45: the budgets are spent, and what is told says where to look."""
    main = '[role.main]\nrun = ["/bin/sh", "-c", "echo too bad; exit 9"]\nrestart = { tries = 1 }\n'
    job = Job("dies", f'name = "dies"\nrestart = {{ tries = 1 }}\n{main}')
    assert job.process.wait(LIMIT) == 1
    why = json.loads(job.ask("status", "--json").stdout)["why"]
    assert "main.0 on node here" in why and "exited with code 9" in why, why
    (log,) = re.findall(r"its output is in (/\S+\.log)", why)
    with open(log, encoding="ascii") as file:
        assert file.read() == "too bad\n"


def a_program_submits_a_job_and_waits_for_its_end():
    """graph B1: the interface of C++."""
    folder = os.path.abspath("jobs")
    line = [JOB_CLIENT_USER, MWGRAPH, ROLE_USER, folder]
    done = subprocess.run(line, capture_output=True, text=True, timeout=4 * LIMIT)
    assert done.returncode == 0, done.stdout + done.stderr


run([claim for name, claim in globals().items() if callable(claim) and name.startswith(("a_", "what_"))])
