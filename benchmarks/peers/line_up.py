"""Which contestants answer which question."""

from contestants import CollectiveDriver, Mwbench, UCX_SHM, gloo, mpich, open_mpi, ucx
from python_peers import multiworld, torch_gloo
from ucx_perftest import UcxPerftest


def of_p2p(program, options):
    return [Mwbench(program, options), ucx(options, "UCX", UCX_SHM),
            ucx(options, "UCX default", "all"), UcxPerftest(options), open_mpi(options),
            mpich(options), torch_gloo(options), multiworld(options)]


def of_distances(program, options):
    """Returns those of p2p that send what was written, and need no Python."""
    return [Mwbench(program, options), ucx(options, "UCX", UCX_SHM), ucx(options, "UCX default", "all"),
            open_mpi(options), mpich(options)]


def of_pairs(program, options):
    return [Mwbench(program, options),
            open_mpi(options, "Open MPI, yielding", "--mca", "mpi_yield_when_idle", "1"),
            open_mpi(options, "Open MPI, not yielding", "--mca", "mpi_yield_when_idle", "0"),
            mpich(options)]


def of_collectives(program, options):
    over_mpi = {"driver": CollectiveDriver, "transport": "collectives_mpi.c"}
    return [Mwbench(program, options), open_mpi(options, **over_mpi), mpich(options, **over_mpi),
            gloo(options), torch_gloo(options), multiworld(options)]
