// What `mwbench session` asks, as an MPI program does it: rank 0 broadcasts 8 bytes, or
// 64 KiB, to the others and gathers 8 bytes of each. One JSON object, by rank 0.
//   session_mpi COUNT
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { together = 32, large_bytes = 64 << 10, most_ranks = 65 };

static int rank, ranks;
static char large[large_bytes];

static int compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static double median(double* times, int count) {
  qsort(times, (size_t)count, sizeof *times, compare);
  return times[count / 2];
}

/// The command to all, and an answer of each.
static void call(int64_t number, char* more, int bytes) {
  int64_t answers[most_ranks];
  MPI_Bcast(&number, sizeof number, MPI_BYTE, 0, MPI_COMM_WORLD);
  if (bytes > 0) MPI_Bcast(more, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
  const int64_t own = number + rank;
  MPI_Gather(&own, sizeof own, MPI_BYTE, answers, sizeof own, MPI_BYTE, 0,
             MPI_COMM_WORLD);
  for (int r = 0; rank == 0 && r < ranks; ++r) {
    if (answers[r] == number + r) continue;
    fprintf(stderr, "another value came back\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}

static double time_calls(int count, int bytes, double* times) {
  for (int i = 0; i < count; ++i) {
    const double begin = MPI_Wtime();
    call(i, large, bytes);
    times[i] = (MPI_Wtime() - begin) * 1e6;
  }
  return median(times, count);
}

static double time_issues(int count, double* times) {
  for (int i = 0; i < count; ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    for (int64_t number = 0; number < together; ++number)
      MPI_Bcast(&number, sizeof number, MPI_BYTE, 0, MPI_COMM_WORLD);
    times[i] = (MPI_Wtime() - begin) * 1e6 / together;
  }
  return median(times, count);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int count = argc > 1 ? atoi(argv[1]) : 0;
  if (count < together || ranks > most_ranks) {
    fprintf(stderr, "session_mpi COUNT, of 32 or more, with 65 ranks at most\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  double* const times = malloc((size_t)count * sizeof *times);
  time_calls(together, 0, times);
  const double value = time_calls(count, 0, times);
  const double with_64k = time_calls(count / 10 + 1, large_bytes, times);
  const double issue = time_issues(count / together, times);
  if (rank == 0) {
    printf("{\"size\": %d, \"call_us\": %g, \"call_64k_us\": %g, \"issue_us\": %g}\n",
           ranks - 1, value, with_64k, issue);
  }
  free(times);
  MPI_Finalize();
  return 0;
}
