#!/usr/bin/env python3
"""mwgraph as its user sees it: exit codes, and what stands on standard output and error.

usage: mwgraph_test.py MWGRAPH
"""
import os
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


def all_faults_are_said_a_line_each():
    with open("wrong.toml", "w", encoding="utf-8") as file:
        file.write(GOOD.replace('"decode"\n', '"decodes"\n').replace("min = 1", "min = 3"))
    claim(
        run("check", "wrong.toml"),
        (
            2,
            "",
            'wrong.toml:6:17: role "decode": count.min is 3, above start, 2\n'
            'wrong.toml:9:6: edge "kv": no role "decodes"; did you mean "decode"?\n',
        ),
    )
    code, out, err = run("picture", "wrong.toml")
    claim((code, out, err.count("\n")), (2, "", 2))


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
    claim(err, 'mwgraph: "chek" is no command: check or picture; did you mean "check"?\n')
    for line in [], ["check"], ["check", "job.toml", "more"], ["--no-such"]:
        code, out, err = run(*line)
        claim((code, out), (2, ""))
        assert err.startswith("mwgraph: "), err
    code, out, _ = run("--help")
    assert code == 0 and "picture" in out, out


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
        a_file_that_is_not_there_is_named,
        a_picture_is_of_the_format_that_is_asked_for,
        a_wrong_line_is_refused,
        a_full_disk_is_told,
    ):
        case()
        print("ok:", case.__name__)
    os.chdir("/")
