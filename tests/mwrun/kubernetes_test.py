#!/usr/bin/env python3
"""The manifests of examples/kubernetes are valid, and their command is one that mwrun takes: kubernetes_test.py MWRUN

It needs kubernetes-validate of PyPI, as a module of the interpreter that MANYWORLDS_KUBERNETES_PYTHON names (else of
this one), and is skipped by name without it.
"""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../process"))
from watched_program import PROGRAM, claim, failures  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, "../../examples/kubernetes")
PYTHON = os.environ.get("MANYWORLDS_KUBERNETES_PYTHON", sys.executable)
# The oldest in which a Job counts failures for each of its pods, and the newest that is known.
VERSIONS = ["1.29", "1.34"]
SHOW = """
import json, sys, kubernetes_validate, yaml
found = []
for path in sys.argv[2:]:
    for each in yaml.safe_load_all(open(path)):
        for version in sys.argv[1].split(","):
            kubernetes_validate.validate(each, version, strict=True)
        found.append(each)
print(json.dumps(found))
"""


def validated():
    if subprocess.run([PYTHON, "-c", "import kubernetes_validate"], capture_output=True, check=False).returncode != 0:
        print("skipped: kubernetes-validate is missing (pip install kubernetes-validate; "
              "MANYWORLDS_KUBERNETES_PYTHON names an interpreter that has it)")
        sys.exit(77)
    paths = [os.path.join(FOLDER, name) for name in sorted(os.listdir(FOLDER)) if name.endswith(".yaml")]
    done = subprocess.run([PYTHON, "-c", SHOW, ",".join(VERSIONS), *paths], capture_output=True, text=True, timeout=60,
                          check=False)
    claim(f"L66 {len(paths)} manifests are valid, strictly, in Kubernetes {' and '.join(VERSIONS)}",
          len(paths) == 2 and done.returncode == 0, done.stderr[-1000:])
    return json.loads(done.stdout) if done.returncode == 0 else []


def of_kind(found, kind):
    return next(each for each in found if each["kind"] == kind)


def option(command, name):
    return next(each.split("=", 1)[1] for each in command if each.startswith(name + "="))


found = validated()
pod = of_kind(found, "Job")["spec"]["template"]["spec"]
command = pod["containers"][0]["command"]
claim("the pod's grace is above mwrun's", pod["terminationGracePeriodSeconds"] > int(option(command, "--shutdown-timeout")))
claim("the probes ask where mwrun answers",
      option(command, "--health-endpoint").endswith(f":{pod['containers'][0]['ports'][0]['containerPort']}"))
claim("there are as many pods as nodes", of_kind(found, "Job")["spec"]["completions"] == int(option(command, "--nnodes")))
members = of_kind(found, "StatefulSet")
names = [f"etcd-{i}.{members['spec']['serviceName']}:2379" for i in range(members["spec"]["replicas"])]
claim("mwrun asks all members of etcd", option(command, "--rdzv-endpoint").split(",") == names, names)
# Neither the addresses nor the secret are those of a cluster.
words = [each.replace("$(POD_IP)", "127.0.0.1").replace("$(JOB_UID)", "2b0e9b52-7f4e-4d5f-9d3c-5d5c1f3b9e55")
         for each in command[1:] if not each.startswith("--secret-file=")]
done = subprocess.run([PROGRAM, "--dry-run", *words], capture_output=True, text=True, timeout=60, check=False)
claim("mwrun takes the command", done.returncode == 0 and len(json.loads(done.stdout)) == 2, done.stderr)
sys.exit(bool(failures))
