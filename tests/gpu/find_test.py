"""run.sh takes the libraries and headers that a machine with a GPU has, wherever they are."""

import os
import pathlib
import subprocess
import tempfile
import unittest

script = pathlib.Path(__file__).resolve().parent / "run.sh"


class Finding(unittest.TestCase):
    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.folder = pathlib.Path(held.name)

    def make(self, *names):
        for name in names:
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()

    def find(self, *arguments):
        environment = {
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(self.folder),
            "CUDA_HOME": str(self.folder / "cuda"),
            "OUT": str(self.folder / "results"),
        }
        return subprocess.run(
            ["bash", str(script), "--find", *arguments],
            env=environment, capture_output=True, text=True, timeout=20, cwd=self.folder,
        )

    def test_programs_that_are_built_need_the_libraries_alone(self):
        self.make("cuda/lib64/libcudart.so.13", "nvidia/nccl/lib/libnccl.so.2")
        ran = self.find("--no-build")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertIn(f"CUDA in {self.folder}/cuda, NCCL in {self.folder}/nvidia/nccl", ran.stdout)

    def test_a_library_without_its_header_is_built_against_the_header_of_another_folder(self):
        self.make("cuda/lib64/libcudart.so.13", "cuda/include/cuda_runtime_api.h",
                  "cuda/include/nccl.h", "nvidia/nccl/lib/libnccl.so.2")
        ran = self.find()
        self.assertEqual(ran.returncode, 0, ran.stderr)
        both = self.folder / "results/nccl"
        self.assertTrue((both / "include/nccl.h").exists())
        self.assertTrue(os.path.samefile(both / "lib", self.folder / "nvidia/nccl/lib"))

    def test_a_library_that_has_its_header_is_taken_as_it_is(self):
        self.make("cuda/lib64/libcudart.so.13", "cuda/include/cuda_runtime_api.h",
                  "nvidia/nccl/include/nccl.h", "nvidia/nccl/lib/libnccl.so.2")
        ran = self.find()
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertNotIn("nccl.h of", ran.stdout)


unittest.main()
