"""Results as Markdown: the machine's facts, the parts, what did not pass, figures. For one run
(suite.py), and for several that merge.py puts together."""

RESULTS = ("passed", "skipped", "failed", "hung", "crashed")
# Of each question, what is shown.
FIGURES = {
    "await": ["ranks", "size", "launch", "completion", "p50_us", "spin_p50_us", "over_spin_us",
              "over_sync_us", "matched_over_spin_us", "p99_us"],
    "matched": ["size", "matched", "p50_us", "p99_us", "gb_s"],
    "create": ["ranks", "creation", "ready_ms", "ready_max_ms", "mib"],
    "disturb": ["quiet_p99_us", "p99_us", "p99_ratio", "max_us", "communicators"],
    "worlds": ["worlds", "one_per_s", "all_per_s", "ratio", "least_per_s"],
    "order": ["worlds", "size", "round_us", "us_per_op"],
    "kill": ["fault", "in_free", "repeats", "error_ms", "error_max_ms", "back_ms", "back_max_ms",
             "beside_max_us", "quiet_max_us"],
}
# Which come first, in a table of their own: what one looks for in a result.
FIRST = ("time", "gpu_count", "driver", "cuda_driver", "cuda_runtime", "nccl", "mig", "mps",
         "processor", "usable_cpus", "memory", "kernel")


def table(columns, rows):
    yield "| " + " | ".join(columns) + " |"
    yield "|" + "---|" * len(columns)
    for row in rows:
        yield "| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |"


def records(found):
    """A table of dictionaries that have the same keys, or why there are none."""
    if not isinstance(found, list) or not found:
        yield str(found)
        return
    columns = list(found[0])
    yield from table(columns, [[row.get(column, "") for column in columns] for row in found])


def peers(found):
    if not isinstance(found, list) or not found:
        yield str(found)
        return
    yield from table(["from \\ to", *map(str, range(len(found)))],
                     [[one, *row] for one, row in enumerate(found)])


def facts(told):
    """What the machine is. Every fact that was told, known or not."""
    yield "## The machine"
    yield ""
    if not told:
        yield "Unknown."
        return
    yield from records(told.get("gpus", "unknown: nothing was told of GPUs"))
    yield ""
    order = [name for name in FIRST if name in told] + [name for name in told if name not in FIRST]
    special = ("gpus", "peer_access", "environment", "nvidia_smi", "topology")
    yield from table(("fact", ""), [(name, told[name]) for name in order if name not in special])
    yield ""
    yield "Which GPU reaches the memory of which:"
    yield ""
    yield from peers(told.get("peer_access", "unknown: nothing was told of it"))
    yield ""
    yield "What nvidia-smi says:"
    yield ""
    yield from records(told.get("nvidia_smi", "unknown: it was not asked"))
    if isinstance(told.get("topology"), list):
        yield from ("", "```", *told["topology"], "```")
    yield ""
    yield "The environment of the programs:"
    yield ""
    yield from table(("variable", "value"), told.get("environment", {}).items())


def short(told):
    """A line for each GPU and one for all of it, for who watches the run."""
    found = told.get("gpus", "unknown")
    for gpu in found if isinstance(found, list) else []:
        yield (f"{gpu['name']}, compute capability {gpu['compute_capability']}, "
               f"{gpu['multiprocessors']} multiprocessors, {gpu['memory_mib']} MiB")
    if not isinstance(found, list):
        yield f"GPUs: {found}"
    yield ", ".join(f"{name} {told.get(name, 'unknown')}" for name in (
        "driver", "cuda_driver", "cuda_runtime", "nccl", "mig", "mps"))
    yield f"peer access: {told.get('peer_access', 'unknown')}"
    connections = told.get("environment", {}).get("CUDA_DEVICE_MAX_CONNECTIONS", "unknown")
    yield f"CUDA_DEVICE_MAX_CONNECTIONS {connections}"
    yield ", ".join(f"{name} {told.get(name, 'unknown')}" for name in (
        "usable_cpus", "memory", "kernel", "time"))
    if "not_asked" in told:
        yield told["not_asked"]


def parts(suite):
    yield "## Parts"
    yield ""
    yield from table(("part", *RESULTS, "seconds", "limit"),
                     [[part["part"], *(part[kind] for kind in RESULTS), part["seconds"],
                       part["limit"]] for part in suite["parts"]])
    bad = [(part["part"], case["name"], case["result"], case["why"]) for part in suite["parts"]
           for case in part["cases"] if case["result"] not in ("passed", "skipped")]
    yield ""
    yield "## What did not pass"
    yield ""
    yield from table(("part", "case", "result", "why"), bad) if bad else ["Nothing."]


def figures(rows):
    for bench, columns in FIGURES.items():
        found = [row for row in rows if row.get("bench") == bench]
        if not found:
            continue
        yield ""
        yield f"## {bench}"
        yield ""
        yield from table(columns, [[row.get(column, "") for column in columns] for row in found])


def page(suite, rows):
    yield "# GPU suite"
    yield ""
    if suite["emulated"]:
        yield "**On emulated GPUs: nothing here says anything of a real one.**"
        yield ""
    yield from facts(suite["facts"])
    yield ""
    if suite["machine"]:
        yield "What the benchmarks say of themselves: " + ", ".join(
            f"{name} {value}" for name, value in suite["machine"].items()
            if name in ("compiler", "optimized", "engine", "version", "load", "date"))
        yield ""
    yield from parts(suite)
    yield from figures(rows)
