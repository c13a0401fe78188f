#!/usr/bin/env python3
"""A job in an allocation of Slurm, by the script of examples/graphs.md: a node's agent is killed, and the job goes on.

usage: slurm_test.py MWGRAPH ROLE_USER

Slurm runs as two nodes in namespaces of its own, where MANYWORLDS_TEST_LONG is set; what is missing is skipped by name.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

from one_host import MWGRAPH, graph

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../examples/graphs.md")
RECIPE = os.environ.get("MANYWORLDS_SLURM", "/work/shared/recipes/slurm-on-one-machine.sh")
CLEAN = {name: value for name, value in os.environ.items() if not re.match(r"SLURM|PMI|OMPI|RANK|WORLD_SIZE|MASTER_", name)}

GRAPH = graph("serving", '[[place]]\nrule = "spread"\nroles = ["decode"]\n').replace("count = 2", "count = 3")

# The nodes' names are looked up as on a cluster. The second node's agent is killed, with no time to say anything.
DRIVER = """
echo "10.99.0.1 n1 n2" >> /etc/hosts
export PATH={programs}:$PATH
cd {folder}
timeout 90 sbatch --wait --output=job.log job.sh &
job=$!
until_status() {{
  for _ in $(seq 600); do
    mwgraph status serving --folder jobs --json 2>/dev/null >now.json
    python3 -c "$1" 2>/dev/null && return 0
    sleep 0.05
  done
  echo "never seen: $1"; cat now.json; return 1
}}
ready='import json; n = [i for i in json.load(open("now.json"))["instances"] if i.get("life") == "ready"]'
until_status "$ready; assert len(n) == 4 and {{i['node'] for i in n}} >= {{'n1', 'n2'}}"
mwgraph status serving --folder jobs
for pid in $(pgrep -f "mwgraph agent serving"); do
  grep -qz SLURMD_NODENAME=n2 /proc/$pid/environ && kill -9 $pid
done
until_status "$ready; assert len(n) == 4 and all(i['node'] != 'n2' for i in n)" && echo "goes on without n2"
mwgraph status serving --folder jobs
mwgraph stop serving --folder jobs
wait $job
echo "== $?"
cat job.log
echo "== left: $(pgrep -x mwgraph) $(pgrep -x role_user)"
"""


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def main():
    if not os.environ.get("MANYWORLDS_TEST_LONG"):
        skip("MANYWORLDS_TEST_LONG is not set")
    for tool in ("sbatch", "slurmctld", "slurmd", "munged"):
        if not shutil.which(tool):
            skip(f"{tool} is missing (Debian: slurmctld slurmd slurm-client munge)")
    if not os.path.exists(RECIPE) or os.geteuid() != 0:
        skip("Slurm runs as root by the script that MANYWORLDS_SLURM names")
    with open(PAGE, encoding="utf-8") as page:
        script = re.search(r"```sh\n(#!/bin/bash\n#SBATCH.*?)```", page.read(), re.S)[1]
    with tempfile.TemporaryDirectory() as folder:
        programs = os.path.join(folder, "programs")
        os.mkdir(programs)
        os.symlink(MWGRAPH, os.path.join(programs, "mwgraph"))
        driver = os.path.join(folder, "driver.sh")
        for name, text in (("job.sh", script), ("serving.toml", GRAPH),
                           ("driver.sh", DRIVER.format(folder=folder, programs=programs))):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        done = subprocess.run(["unshare", "-m", "-n", "-p", "-f", "--mount-proc", "-u", "bash", RECIPE, folder, "bash",
                               driver], env={**CLEAN, "LIMIT": "150"}, capture_output=True, text=True, timeout=200)
    said = done.stdout + done.stderr
    assert "goes on without n2" in said and "never seen" not in said, said
    # It was told to stop: its code is 0, and the batch's with it.
    assert re.search(r"^== 0$", said, re.M), said
    assert re.search(r"^== left:\s*$", said, re.M), said
    print("a job in an allocation of Slurm goes on without one of its nodes")
    return 0


sys.exit(main())
