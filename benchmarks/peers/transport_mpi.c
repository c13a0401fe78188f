#include <mpi.h>

#include "transport.h"

// MPI ends the process at any error by itself (MPI_ERRORS_ARE_FATAL).
static MPI_Request requests[in_flight] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL,
                                          MPI_REQUEST_NULL, MPI_REQUEST_NULL};

void transport_open(int* argc, char*** argv, int* rank) {
  MPI_Init(argc, argv);
  MPI_Comm_rank(MPI_COMM_WORLD, rank);
}

void transport_close(void) { MPI_Finalize(); }

void transport_send(const char* buffer, size_t size, int peer) {
  MPI_Send(buffer, (int)size, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
}

void transport_receive(char* buffer, size_t size, int peer) {
  MPI_Recv(buffer, (int)size, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

void transport_start_send(int slot, const char* buffer, size_t size, int peer) {
  MPI_Isend(buffer, (int)size, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &requests[slot]);
}

void transport_start_receive(int slot, char* buffer, size_t size, int peer) {
  MPI_Irecv(buffer, (int)size, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &requests[slot]);
}

void transport_finish(int slot) { MPI_Wait(&requests[slot], MPI_STATUS_IGNORE); }

void transport_barrier(void) { MPI_Barrier(MPI_COMM_WORLD); }

void transport_gather_greatest(const double* mine, double* greatest, int count) {
  MPI_Reduce(mine, greatest, count, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
}
