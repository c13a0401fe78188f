#!/usr/bin/env python3
"""mwrun under Slurm, as examples/starting.md says: a node is killed, and the job goes on with the other.

usage: slurm_test.py MWRUN MWSTORE ELASTIC

Slurm runs as two nodes in namespaces of its own, where MANYWORLDS_TEST_LONG is set; what is missing is skipped by
name. The commands are those of the page: this test reads them there.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../process"))
from watched_program import ARGUMENTS, PROGRAM, claim, claim_nothing_is_left, failures  # noqa: E402

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../examples/starting.md")
RECIPE = os.environ.get("MANYWORLDS_SLURM", "/work/shared/recipes/slurm-on-one-machine.sh")
CLEAN = {name: value for name, value in os.environ.items() if not re.match(r"SLURM|PMI|OMPI|RANK|WORLD_SIZE|MASTER_", name)}

# The nodes' names are looked up as on a cluster. The second node's agent is killed, with no time to say anything.
DRIVER = """
echo "10.99.0.1 n1 n2" >> /etc/hosts
export PATH={programs}:$PATH
cd {folder}
mwstore secret job.key || exit 1
timeout 60 sbatch --wait --output=job.log job.sh &
job=$!
wait_for() {{
  for _ in $(seq 400); do grep -q "$1" job.log 2>/dev/null && return 0; sleep 0.05; done
  echo "never seen: $1"; return 1
}}
wait_for "rank 3: 2-3@1 is up"
for pid in $(pgrep -x mwrun); do
  grep -qz SLURM_NODEID=1 /proc/$pid/environ && [ "$(ps -o comm= $(ps -o ppid= $pid))" = slurmstepd ] && kill -9 $pid
done
wait_for "round 2, attempt 2: 2 workers on 1 node"
wait_for "in 1 world,"
sleep 1
scancel --signal=TERM --full $(squeue -h -o %A)
wait $job
echo "=="
cat job.log
echo "== left: $(pgrep -x mwrun) $(pgrep -x elastic)"
"""


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def script_of_page():
    with open(PAGE, encoding="utf-8") as file:
        return re.search(r"```sh\n(#!/bin/bash\n#SBATCH.*?)```", file.read(), re.S)[1]


def node_killed():
    with tempfile.TemporaryDirectory() as folder:
        programs = os.path.join(folder, "programs")
        os.mkdir(programs)
        for each in (PROGRAM, *ARGUMENTS):
            os.symlink(os.path.abspath(each), os.path.join(programs, os.path.basename(each)))
        with open(os.path.join(folder, "job.sh"), "w", encoding="utf-8") as file:
            file.write(script_of_page())
        driver = os.path.join(folder, "driver.sh")
        with open(driver, "w", encoding="utf-8") as file:
            file.write(DRIVER.format(folder=folder, programs=programs))
        done = subprocess.run(["unshare", "-m", "-n", "-p", "-f", "--mount-proc", "-u", "bash", RECIPE, folder, "bash",
                               driver], env={**CLEAN, "LIMIT": "150"}, capture_output=True, text=True, timeout=200)
    said = done.stdout + done.stderr
    claim("L66 the nodes of a Slurm job meet", "round 1: 4 workers on 2 nodes" in said, said)
    claim("L66 a node that is killed is named by the other", re.search(r"mwrun: node \d on [\d.]+ is gone", said) is not None, said)
    claim("L66 which goes on with its workers", "round 2, attempt 2: 2 workers on 1 node" in said and
          "never seen" not in said)
    claim("nothing is left on the nodes", re.search(r"^== left:\s*$", said, re.M) is not None,
          re.findall("^== left.*", said, re.M))
    claim_nothing_is_left()


if not os.environ.get("MANYWORLDS_TEST_LONG"):
    skip("Slurm is started where MANYWORLDS_TEST_LONG is set (tests/run.sh --full)")
for tool in ("sbatch", "slurmctld", "slurmd", "munged"):
    if not shutil.which(tool):
        skip(f"{tool} is missing (Debian: slurmctld slurmd slurm-client munge)")
if not os.path.exists(RECIPE) or os.geteuid() != 0:
    skip("Slurm runs as root by the script that MANYWORLDS_SLURM names")
node_killed()
sys.exit(bool(failures))
