#!/usr/bin/env python3
"""mwgraph as its user sees it: exit codes, and what stands on standard output and error.

usage: mwgraph_test.py MWGRAPH
"""
import json
import os
import socket
import subprocess
import sys
import tempfile

MWGRAPH = os.path.abspath(sys.argv[1])

GOOD = """\
name = "serving"
[role.prefill]
run = ["./serving", "prefill"]
[role.decode]
run = ["./serving", "decode"]
count = { min = 1, start = 2, max = 4 }
[edge.kv]
from = "prefill"
to = "decode"
"""


def run(*arguments, **more):
    done = subprocess.run([MWGRAPH, *arguments], capture_output=True, text=True, timeout=30, **more)
    return done.returncode, done.stdout, done.stderr


def claim(found, wanted):
    assert found == wanted, f"{found!r} is not {wanted!r}"


def a_good_file_is_counted():
    claim(run("check", "job.toml"), (0, "job.toml: 2 roles, 3 instances, 1 edge\n", ""))


FAULTS = """\
wrong.toml:6:17: role "decode": count.min is 3, above start, 2
wrong.toml:9:6: edge "kv": no role "decodes"; did you mean "decode"?
"""


def all_faults_are_said_a_line_each():
    with open("wrong.toml", "w", encoding="utf-8") as file:
        file.write(GOOD.replace('"decode"\n', '"decodes"\n').replace("min = 1", "min = 3"))
    claim(run("check", "wrong.toml"), (2, "", FAULTS))
    claim(run("picture", "wrong.toml"), (2, "", FAULTS))


def a_wrong_file_starts_nothing():
    for command in "run", "start":
        claim(run(command, "wrong.toml", "--folder", "unmade"), (2, "", FAULTS))
    # The store, where nothing listens, is not asked first.
    where = ["--store", "127.0.0.1:1", "--insecure", "--context", "unmade"]
    claim(run("master", "serving", *where, "--graph", "wrong.toml"), (2, "", FAULTS))
    assert not os.path.exists("unmade"), "a job's folder or context was made"


def a_file_that_is_not_there_is_named():
    claim(run("check", "none.toml"), (2, "", "mwgraph: none.toml: No such file or directory\n"))


def a_picture_is_of_the_format_that_is_asked_for():
    code, out, err = run("picture", "job.toml")
    claim((code, err), (0, ""))
    assert out.startswith('digraph "serving" {\n'), out
    code, out, err = run("picture", "job.toml", "--format", "mermaid")
    claim((code, err), (0, ""))
    assert out.startswith("flowchart LR\n"), out
    code, out, err = run("picture", "job.toml", "--format", "png")
    claim((code, out), (2, ""))
    assert "--format" in err and "dot" in err, err


def a_wrong_line_is_refused():
    code, out, err = run("chek", "job.toml")
    claim((code, out), (2, ""))
    assert err.startswith('mwgraph: "chek" is no command: check, picture, '), err
    assert err.endswith('; did you mean "check"?\n'), err
    for line in [], ["check"], ["check", "job.toml", "more"], ["--no-such"]:
        code, out, err = run(*line)
        claim((code, out), (2, ""))
        assert err.startswith("mwgraph: "), err
    code, out, _ = run("--help")
    assert code == 0 and "picture" in out, out


def logs_are_those_of_this_machine():
    os.makedirs("jobs/serving/logs/decode.0")
    with open("jobs/serving/logs/decode.0/1.log", "w", encoding="utf-8") as file:
        file.write("is here\n")
    claim(run("logs", "serving", "decode.0", "--folder", "jobs"), (0, "--- incarnation 1 ---\nis here\n", ""))
    code, out, err = run("logs", "serving", "decode.1", "--folder", "jobs")
    claim((code, out), (2, ""))
    assert 'no log of "decode.1" in jobs/serving/logs' in err, err
    # Where a job's store is says nothing of where its logs are.
    code, out, err = run("logs", "serving", "decode.0", "--store", "127.0.0.1:1")
    claim((code, out), (2, ""))
    assert "--store" in err, err


def declare(name, **what):
    with open(f"{name}.json", "w", encoding="utf-8") as file:
        json.dump({"name": name, **what}, file)
    return "--node", f"{name}.json"


PLANNED = """\
name = "serving"
[role.decode]
run = ["./serving", "decode"]
count = 2
after = ["prefill"]
needs = { cpus = 3, memory = "2GiB", gpus = 1 }
[role.prefill]
run = ["./serving", "prefill"]
needs = { cpus = 1 }
[role.router]
run = ["./serving", "router"]
count = { min = 0, start = 0, max = 1 }
[[place]]
roles = ["prefill", "decode"]
rule = "apart"
"""


def a_plan_says_what_runs_where_and_why():
    with open("planned.toml", "w", encoding="utf-8") as file:
        file.write(PLANNED)
    a = declare("a", cpus=[[0, 1, 2, 3], [8, 10, 11]], memory="8GiB", gpus=[{"uuid": "GPU-7", "numa": 1}, {"uuid": "GPU-9"}])
    b = declare("b", cpus=[[0]])
    claim(
        run("plan", "planned.toml", *a, *b),
        (
            0,
            "serving: 3 instances would start in this order\n"
            "1. prefill\n"
            "  prefill.0 on b: CPU 0 (apart [prefill, decode]; the only node that fits)\n"
            "2. decode, after prefill\n"
            "  decode.0 on a: CPUs 8,10-11, 2 GiB, GPU-7 (the only node that fits)\n"
            "  decode.1 on a: CPUs 0-2, 2 GiB, GPU-9 (the only node that fits)\n"
            "3. router: no instance\n"
            "nodes\n"
            "  a: 2 instances, with 6 of 7 CPUs, 4 GiB of 8 GiB, 2 of 2 GPUs\n"
            "  b: 1 instance, with 1 of 1 CPU, 0 B of 0 B, 0 of 0 GPUs\n",
            "",
        ),
    )


def what_cannot_be_placed_is_refused_with_the_rule():
    a = declare("a", cpus=[list(range(9))], memory="8GiB", gpus=[{"uuid": "GPU-7"}, {"uuid": "GPU-9"}])
    claim(
        run("plan", "planned.toml", *a),
        (
            2,
            "",
            "mwgraph: serving cannot be placed: apart [prefill, decode] needs 2 nodes (prefill 1, decode 1), "
            "1 has room; by the rule: apart [prefill, decode]\n",
        ),
    )
    b = declare("b", cpus=[[0]])
    claim(
        run("plan", "planned.toml", *b),
        (
            2,
            "",
            "mwgraph: serving cannot be placed: short of 2 gpus: 2 needed, 0 there; short of 6 cpus: 7 needed, "
            "1 there; short of 4 GiB of memory: 4 GiB needed, 0 B there\n",
        ),
    )


def a_node_that_is_declared_wrong_is_named():
    claim(run("plan", "job.toml", "--node", "none.json"), (2, "", "mwgraph: none.json: cannot be read\n"))
    node = declare("a", cpu=[[0]])
    claim(
        run("plan", "job.toml", *node),
        (2, "", 'mwgraph: a.json: resources of a node: "cpu": there is no such field; did you mean "cpus"?\n'),
    )
    with open("unnamed.json", "w", encoding="utf-8") as file:
        file.write("{}")
    claim(run("plan", "job.toml", "--node", "unnamed.json"), (2, "", 'mwgraph: unnamed.json: it has no "name"\n'))
    claim(run("plan", "job.toml", *node, "--node"), (2, "", "mwgraph: --node: 1 required TEXT missing\n"))


def without_nodes_a_plan_is_for_this_machine():
    code, out, err = run("plan", "job.toml")
    claim((code, err), (0, ""))
    assert f"prefill.0 on {socket.gethostname()}: shared CPUs" in out, out


def a_full_disk_is_told():
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run([MWGRAPH, "check", "job.toml"], stdout=full, stderr=subprocess.PIPE, timeout=30)
    assert done.returncode == 1 and b"standard output" in done.stderr, done


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    with open("job.toml", "w", encoding="utf-8") as good:
        good.write(GOOD)
    for case in (
        a_good_file_is_counted,
        all_faults_are_said_a_line_each,
        a_wrong_file_starts_nothing,
        a_file_that_is_not_there_is_named,
        a_picture_is_of_the_format_that_is_asked_for,
        a_plan_says_what_runs_where_and_why,
        what_cannot_be_placed_is_refused_with_the_rule,
        a_node_that_is_declared_wrong_is_named,
        without_nodes_a_plan_is_for_this_machine,
        a_wrong_line_is_refused,
        logs_are_those_of_this_machine,
        a_full_disk_is_told,
    ):
        case()
        print("ok:", case.__name__)
    os.chdir("/")
