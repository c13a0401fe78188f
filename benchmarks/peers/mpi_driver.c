// The questions of `mwbench p2p` and `mwbench pairs`, asked of an MPI: the same counts,
// the same clock, the same buffers. One JSON object a line and size.
//   mpi_driver p2p SIZES ROUNDS PINGS     two ranks
//   mpi_driver pairs SIZES SECONDS        each even rank with the next, all pairs at once
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { in_flight = 4, most_sizes = 32, most_samples = 1 << 22 };

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int compare(const void* a, const void* b) {
  const float x = *(const float*)a, y = *(const float*)b;
  return (x > y) - (x < y);
}

static double quantile(const float* sorted, size_t count, double part) {
  return count ? sorted[(size_t)(part * (double)(count - 1) + 0.5)] : 0;
}

static size_t within(size_t wanted, size_t most) {
  return wanted < 2 ? 2 : wanted > most ? most : wanted;
}

static void pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET((size_t)cpu, &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) perror("pinning to a CPU");
}

/// Half round trips, into `halves`; `count` of them, or until `end`: the last message
/// says that it is the last.
static size_t ping(char* buffer, int size, int peer, size_t count, double end,
                   float* halves) {
  size_t done = 0;
  for (int last = 0; !last; ++done) {
    const double begin = now_us();
    last = done + 1 == count || begin >= end;
    buffer[0] = last ? 'q' : 'x';
    MPI_Send(buffer, size, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
    MPI_Recv(buffer, size, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (done < most_samples) halves[done] = (float)((now_us() - begin) / 2);
  }
  return done;
}

static void echo(char* buffer, int size, int peer) {
  do {
    MPI_Recv(buffer, size, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(buffer, size, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
  } while (buffer[0] != 'q');
}

static double stream(char* buffer, int size, size_t count) {
  MPI_Request requests[in_flight];
  const double begin = now_us();
  for (size_t i = 0; i < count; ++i) {
    MPI_Request* r = &requests[i % in_flight];
    if (i >= in_flight) MPI_Wait(r, MPI_STATUS_IGNORE);
    MPI_Isend(buffer, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD, r);
  }
  for (int i = 0; i < in_flight; ++i) MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
  char taken;
  MPI_Recv(&taken, 1, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  return now_us() - begin;
}

static void drain(char* memory, int size, size_t count) {
  MPI_Request requests[in_flight];
  for (size_t i = 0; i < count; ++i) {
    const size_t slot = i % in_flight;
    if (i >= in_flight) MPI_Wait(&requests[slot], MPI_STATUS_IGNORE);
    MPI_Irecv(memory + slot * (size_t)size, size, MPI_BYTE, 0, 0, MPI_COMM_WORLD,
              &requests[slot]);
  }
  for (int i = 0; i < in_flight; ++i) MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
  const char taken = 1;
  MPI_Send(&taken, 1, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
}

static void p2p(int rank, char* memory, float* halves, int size, size_t rounds,
                size_t most) {
  if (most > most_samples / rounds) most = most_samples / rounds;
  const size_t pings = within(((size_t)64 << 20) / (size_t)size, most);
  const size_t messages =
      in_flight * within(((size_t)128 << 20) / (size_t)size / in_flight, most);
  float* speeds = malloc(rounds * sizeof *speeds);
  size_t sampled = 0;
  for (size_t round = 0; round < rounds; ++round) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
      ping(memory, size, 1, pings / 20 + 1, 1e300, halves + sampled);
      sampled += ping(memory, size, 1, pings, 1e300, halves + sampled);
      speeds[round] =
          (float)((double)size * (double)messages / 1e3 / stream(memory, size, messages));
    } else {
      echo(memory, size, 0);
      echo(memory, size, 0);
      drain(memory, size, messages);
    }
  }
  if (rank == 0) {
    qsort(halves, sampled, sizeof *halves, compare);
    qsort(speeds, rounds, sizeof *speeds, compare);
    printf("{\"size\": %d, \"p50_us\": %.4g, \"p99_us\": %.4g, \"gb_s\": %.4g}\n", size,
           quantile(halves, sampled, 0.5), quantile(halves, sampled, 0.99),
           quantile(speeds, rounds, 0.5));
  }
  free(speeds);
}

/// What is printed is the slower pair's: a sum would hide one that starves.
static void pairs(int rank, char* memory, float* halves, int size, double seconds) {
  double mine[4] = {0}, worst[4];
  double trips;
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank % 2 == 0) {
    const double begin = now_us();
    const size_t count =
        ping(memory, size, rank + 1, (size_t)-1, begin + seconds * 1e6, halves);
    mine[0] = (now_us() - begin) / 2 / (double)count;
    const size_t sampled = count < most_samples ? count : most_samples;
    qsort(halves, sampled, sizeof *halves, compare);
    mine[1] = quantile(halves, sampled, 0.5);
    mine[2] = quantile(halves, sampled, 0.99);
    mine[3] = (double)count;
  } else {
    echo(memory, size, rank - 1);
  }
  MPI_Reduce(mine, worst, 3, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  MPI_Reduce(&mine[3], &trips, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    printf(
        "{\"size\": %d, \"mean_us\": %.4g, \"p50_us\": %.4g, \"p99_us\": %.4g, "
        "\"round_trips\": %.0f}\n",
        size, worst[0], worst[1], worst[2], trips);
  }
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (argc < 4) {
    fprintf(stderr, "usage: mpi_driver p2p SIZES ROUNDS PINGS | pairs SIZES SECONDS\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  const int is_p2p = strcmp(argv[1], "p2p") == 0;
  int sizes[most_sizes], count = 0, largest = 1;
  for (char* s = strtok(argv[2], ","); s && count < most_sizes; s = strtok(NULL, ",")) {
    sizes[count] = atoi(s);
    if (sizes[count] > largest) largest = sizes[count];
    ++count;
  }
  const size_t bytes = (size_t)largest * in_flight;
  char* memory = malloc(bytes);
  memset(memory, 'x', bytes);
  float* halves = malloc(most_samples * sizeof *halves);
  memset(halves, 0, most_samples * sizeof *halves);
  if (is_p2p) pin(rank);
  for (int i = 0; i < count; ++i) {
    if (is_p2p) {
      p2p(rank, memory, halves, sizes[i], strtoul(argv[3], NULL, 10),
          argc > 4 ? strtoul(argv[4], NULL, 10) : 2000);
    } else {
      pairs(rank, memory, halves, sizes[i], atof(argv[3]));
    }
  }
  free(halves);
  free(memory);
  MPI_Finalize();
  return 0;
}
