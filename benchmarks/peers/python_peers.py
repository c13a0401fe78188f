"""The contestants for Python, asked by driver.py: torch.distributed and MultiWorld, both over gloo."""

import functools
import os

from programs import Failed, HERE, rows_of, run

DRIVER = os.path.join(HERE, "driver.py")


class PythonPeer:
    compared = True

    def __init__(self, name, library, module, package, options):
        self.name = name
        self.library = library
        self.module = module
        self.package = package
        self.options = options

    @functools.cache
    def interpreter(self):
        """install.sh's own, else the first that has the library: a pyenv may hide Debian's."""
        folders = [os.path.join(self.options.build, self.library, "bin"),
                   *os.environ["PATH"].split(os.pathsep)]
        look = f"import importlib.util as u, sys; sys.exit(u.find_spec('{self.module}') is None)"
        for folder in folders:
            program = os.path.join(folder, "python3")
            if not os.access(program, os.X_OK):
                continue
            try:
                run([program, "-c", look])
                return program
            except Failed:
                continue
        return None

    def missing(self):
        return self.interpreter() is None

    def version(self):
        """Of what it is over, too: MultiWorld patches one torch."""
        show = "from importlib.metadata import version as v; print('torch', v('torch'))"
        if self.module != "torch":
            show += f"; print('{self.module}', v('{self.module}'))"
        return ", ".join(run([self.interpreter(), "-c", show]).splitlines())

    def command(self, question, *arguments):
        return [self.interpreter(), "-W", "ignore", DRIVER, self.library, question,
                *map(str, arguments)]

    def ask(self, question, sizes, *arguments):
        output = run(self.command(question, ",".join(map(str, sizes)), *arguments))
        return {row["size"]: row for row in rows_of(output)}

    def p2p(self, sizes):
        return self.ask("p2p", sizes, self.options.inner_rounds, self.options.pings)

    def collective(self, kind, members, sizes):
        return self.ask(kind, sizes, self.options.collective_seconds, members)


def torch_gloo(options):
    return PythonPeer("torch gloo", "torch", "torch", "python3-torch (or install.sh --torch)",
                      options)


def multiworld(options):
    return PythonPeer("MultiWorld", "multiworld", "multiworld", "install.sh --multiworld", options)
