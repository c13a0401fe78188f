"""What facts.py tells of a machine, and of one that has little or misbehaves: facts_test.py [LIBRARIES]

LIBRARIES is the folder of the emulated CUDA and NCCL; without it they are not asked."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
import facts
import page
import suite

here = pathlib.Path(__file__).resolve().parent
libraries = sys.argv.pop(1) if len(sys.argv) > 1 else ""

SMI = """#!/bin/sh
case $* in
  *--query-gpu*) echo "0, NVIDIA H100, 580.1, 81559 MiB, 3 MiB, 0000:01:00.0, Enabled, Default, Enabled, 1980 MHz, 700 W" ;;
  *-L*) printf 'GPU 0: NVIDIA H100\\n  MIG 1g.10gb Device 0:\\n  MIG 1g.10gb Device 1:\\n' ;;
  *topo*) printf 'GPU0 X\\n' ;;
esac
"""
# What facts.py itself may come to: a driver that does not answer, or ends the process.
BEGINS_AND = """
import os, sys, time
print('{"kernel": "Linux"}', flush=True)
print('{"driver": "unkn', end="", flush=True)
"""


class Telling(unittest.TestCase):
    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.folder = pathlib.Path(held.name)

    def program(self, name, text):
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def ask(self, folder="", **more):
        environment = {"PATH": f"{self.folder}/bin:/usr/bin:/bin", "LD_LIBRARY_PATH": str(folder)}
        return facts.of(environment | more, 30)

    def emulated(self, **more):
        if not libraries:
            self.skipTest("no emulated libraries are named")
        return self.ask(libraries, **more)

    def test_a_gpu_is_told_with_all_that_decides_what_runs_on_it(self):
        told = self.emulated(EMULATED_CUDA_DEVICES="2", EMULATED_CUDA_PEER_ACCESS="0",
                             EMULATED_CUDA_SMS="78", CUDA_DEVICE_MAX_CONNECTIONS="32")
        self.assertEqual(told["gpu_count"], 2)
        for gpu in told["gpus"]:
            self.assertEqual(
                (gpu["name"], gpu["compute_capability"], gpu["multiprocessors"], gpu["memory_mib"]),
                ("Emulated GPU", "9.0", 78, 81920))
        self.assertEqual(told["peer_access"], [[1, 0], [0, 1]])
        self.assertEqual((told["cuda_runtime"], told["cuda_driver"]), ("13.0", "13.0"))
        self.assertRegex(told["nccl"], r"^2\.\d+\.\d+$")
        self.assertEqual(told["environment"]["CUDA_DEVICE_MAX_CONNECTIONS"], "32")
        self.assertEqual(told["environment"]["CUDA_VISIBLE_DEVICES"], "unset")
        for name in ("time", "kernel", "cpus", "usable_cpus", "memory", "mps"):
            self.assertNotIn("unknown", str(told[name]))
        self.assertNotIn("not_asked", told)
        written = "\n".join(page.facts(told))
        for text in ("Emulated GPU", "78", "CUDA_DEVICE_MAX_CONNECTIONS | 32", "| 1 | 0 |"):
            self.assertIn(text, written)

    def test_a_machine_without_a_gpu_tells_all_else(self):
        told = self.emulated(EMULATED_CUDA_DEVICES="0")
        self.assertIn("cudaErrorNoDevice", told["gpu_count"])
        self.assertIn("cudaErrorNoDevice", told["gpus"])
        self.assertEqual(told["cuda_runtime"], "13.0")
        self.assertRegex(told["nccl"], r"^2\.")
        self.assertNotIn("not_asked", told)
        self.assertIn("cudaErrorNoDevice", "\n".join(page.facts(told)))
        self.assertTrue(all(page.short(told)))

    def test_libraries_that_cannot_be_loaded_are_named(self):
        for name in ("libcudart.so.13", "libcudart.so.12", "libcudart.so", "libnccl.so.2"):
            (self.folder / name).write_text("no library")
        told = self.ask(self.folder)
        self.assertIn("libcudart.so.13", told["cuda_runtime"])
        self.assertIn("libnccl.so.2", told["nccl"])
        self.assertIn("kernel", told)
        self.assertNotIn("not_asked", told)

    def test_nvidia_smi_tells_the_driver_and_mig(self):
        self.program("nvidia-smi", SMI)
        told = self.ask()
        self.assertEqual(told["driver"], "580.1")
        self.assertEqual(told["mig"], "Enabled, 2 parts")
        self.assertEqual(told["topology"], ["GPU0 X"])
        self.assertIn("81559 MiB", "\n".join(page.facts(told)))

    def test_nvidia_smi_that_fails_or_hangs_is_one_fact_less(self):
        self.program("nvidia-smi", "#!/bin/sh\necho 'no devices were found'\nexit 6\n")
        self.assertIn("status 6: no devices were found", self.ask()["nvidia_smi"])
        self.program("nvidia-smi", "#!/bin/sh\nexec sleep 60\n")
        began = time.monotonic()
        told = self.ask()
        self.assertIn("had not ended", told["nvidia_smi"])
        self.assertIn("nccl", told)
        self.assertLess(time.monotonic() - began, 25)

    def test_what_may_be_secret_is_not_told(self):
        told = self.ask(MANYWORLDS_SECRET="x1y2", NVIDIA_API_KEY="x1y2", NCCL_DEBUG="WARN")
        self.assertNotIn("x1y2", json.dumps(told))
        self.assertEqual(told["environment"]["NCCL_DEBUG"], "WARN")

    def test_what_was_told_before_a_hang_or_a_crash_remains(self):
        for end, why in (("time.sleep(60)", "it had not ended after 2 s"),
                         ("os.abort()", "it ended with status -6")):
            script = self.folder / "begins.py"
            script.write_text(BEGINS_AND + end)
            self.addCleanup(setattr, facts, "__file__", facts.__file__)
            facts.__file__ = str(script)
            told = facts.of(dict(os.environ), 2)
            self.assertEqual(told["kernel"], "Linux")
            self.assertIn(why, told["not_asked"])
            self.assertIn("what comes after kernel", told["not_asked"])
            self.assertIn("unknown", "\n".join(page.facts(told)))
            self.assertIn(told["not_asked"], list(page.short(told)))


class Merging(unittest.TestCase):
    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.folder = pathlib.Path(held.name)

    def results(self, name, part, **told):
        folder = self.folder / name
        folder.mkdir()
        case = {"name": "a case", "result": "hung", "seconds": 25, "why": ""}
        kinds = dict.fromkeys(page.RESULTS, 0) | {"hung": 1}
        (folder / "suite.json").write_text(json.dumps({
            "facts": {"gpus": [{"name": "H100", "multiprocessors": 132}], "nccl": "2.28.9"} | told,
            "machine": {}, "emulated": False,
            "parts": [{"part": part, **kinds, "seconds": 26, "limit": 60, "cases": [case]}]}))
        (folder / "benchmarks.json").write_text("")
        return str(folder)

    def merge(self, *folders):
        return subprocess.run([sys.executable, str(here / "merge.py"), "--into",
                               str(self.folder / "merged"), *folders],
                              capture_output=True, text=True, timeout=30)

    def test_the_facts_are_at_the_head_of_what_is_kept(self):
        ran = self.merge(self.results("1", "worlds"), self.results("2", "kill"))
        self.assertEqual(ran.returncode, 0, ran.stderr)
        written = (self.folder / "merged/README.md").read_text()
        self.assertIn("| H100 | 132 |", written.split("## Parts")[0])
        self.assertIn("| kill | a case | hung |", written)
        self.assertEqual(json.loads((self.folder / "merged/suite.json").read_text())["facts"]["nccl"],
                         "2.28.9")

    def test_runs_on_machines_that_differ_are_not_put_together(self):
        ran = self.merge(self.results("1", "worlds"), self.results("2", "kill", nccl="2.27.3"))
        self.assertNotEqual(ran.returncode, 0)
        self.assertIn("another machine", ran.stderr)


class Limits(unittest.TestCase):
    def test_the_limits_of_a_part_add_up_to_less_than_a_run_has(self):
        # run.sh's own: 475 s, of which it keeps 5.
        for part in (1, 2, 3):
            wanted = [limit for _, _, limit, _ in suite.tests(part, False)]
            if part == 3:
                wanted += [limit for _, limit, _ in suite.benchmarks(False, False)]
            self.assertLessEqual(suite.FACTS_SECONDS + sum(wanted), 470, part)
            self.assertGreater(len(wanted), 1)


unittest.main()
