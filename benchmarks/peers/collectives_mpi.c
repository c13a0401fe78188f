#include <mpi.h>

#include "collectives.h"

// MPI ends the process at any error by itself (MPI_ERRORS_ARE_FATAL).
void peer_open(int* argc, char*** argv, int* rank, int* members) {
  MPI_Init(argc, argv);
  MPI_Comm_rank(MPI_COMM_WORLD, rank);
  MPI_Comm_size(MPI_COMM_WORLD, members);
}

void peer_close(void) { MPI_Finalize(); }

void peer_prepare(const struct collective* c) { (void)c; }

void peer_run(const struct collective* c) {
  const MPI_Comm all = MPI_COMM_WORLD;
  const int whole = (int)c->whole, part = (int)c->part;
  switch (c->kind) {
    case broadcast:
      MPI_Bcast(c->target, whole, MPI_BYTE, 0, all);
      break;
    case reduce:
      MPI_Reduce(c->source, c->target, whole, MPI_FLOAT, MPI_SUM, 0, all);
      break;
    case all_reduce:
      MPI_Allreduce(c->source, c->target, whole, MPI_FLOAT, MPI_SUM, all);
      break;
    case gather:
      MPI_Gather(c->source, part, MPI_BYTE, c->target, part, MPI_BYTE, 0, all);
      break;
    case all_gather:
      MPI_Allgather(c->source, part, MPI_BYTE, c->target, part, MPI_BYTE, all);
      break;
    case scatter:
      MPI_Scatter(c->source, part, MPI_BYTE, c->target, part, MPI_BYTE, 0, all);
      break;
    case reduce_scatter:
      MPI_Reduce_scatter_block(c->source, c->target, part, MPI_FLOAT, MPI_SUM, all);
      break;
    case all_to_all:
      MPI_Alltoall(c->source, part, MPI_BYTE, c->target, part, MPI_BYTE, all);
      break;
    default:
      MPI_Barrier(all);
  }
}

void peer_barrier(void) { MPI_Barrier(MPI_COMM_WORLD); }

void peer_all_gather(const double* mine, double* all, int count) {
  MPI_Allgather(mine, count, MPI_DOUBLE, all, count, MPI_DOUBLE, MPI_COMM_WORLD);
}
