// The questions of `mwbench p2p` and `mwbench pairs`, asked of another library through
// transport.h: the same counts, the same clock, the same buffers. One JSON object a size.
//   driver p2p SIZES ROUNDS PINGS     two ranks
//   driver pairs SIZES SECONDS        each even rank with the next, all pairs at once
//   driver wait                       rank 0 waits for rank 1, which does nothing more
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "transport.h"

enum { most_sizes = 32, most_samples = 1 << 22, limit_s = 300 };

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
static size_t ping(char* buffer, size_t size, int peer, size_t count, double end,
                   float* halves) {
  size_t done = 0;
  for (int last = 0; !last; ++done) {
    const double begin = now_us();
    last = done + 1 == count || begin >= end;
    buffer[0] = last ? 'q' : 'x';
    transport_send(buffer, size, peer);
    transport_receive(buffer, size, peer);
    if (done < most_samples) halves[done] = (float)((now_us() - begin) / 2);
  }
  return done;
}

static void echo(char* buffer, size_t size, int peer) {
  do {
    transport_receive(buffer, size, peer);
    transport_send(buffer, size, peer);
  } while (buffer[0] != 'q');
}

static double stream(const char* buffer, size_t size, size_t count) {
  const double begin = now_us();
  for (size_t i = 0; i < count; ++i) {
    const int slot = (int)(i % in_flight);
    transport_finish(slot);
    transport_start_send(slot, buffer, size, 1);
  }
  for (int slot = 0; slot < in_flight; ++slot) transport_finish(slot);
  char taken;
  transport_receive(&taken, 1, 1);
  return now_us() - begin;
}

/// Each receive under way has a buffer of its own.
static void drain(char* memory, size_t size, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const int slot = (int)(i % in_flight);
    transport_finish(slot);
    transport_start_receive(slot, memory + (size_t)slot * size, size, 0);
  }
  for (int slot = 0; slot < in_flight; ++slot) transport_finish(slot);
  const char taken = 1;
  transport_send(&taken, 1, 0);
}

static void p2p(int rank, char* memory, float* halves, size_t size, size_t rounds,
                size_t most) {
  if (most > most_samples / rounds) most = most_samples / rounds;
  const size_t pings = within(((size_t)64 << 20) / size, most);
  const size_t messages =
      in_flight * within(((size_t)128 << 20) / size / in_flight, most);
  float* speeds = malloc(rounds * sizeof *speeds);
  size_t sampled = 0;
  for (size_t round = 0; round < rounds; ++round) {
    transport_barrier();
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
    printf("{\"size\": %zu, \"p50_us\": %.4g, \"p99_us\": %.4g, \"gb_s\": %.4g}\n", size,
           quantile(halves, sampled, 0.5), quantile(halves, sampled, 0.99),
           quantile(speeds, rounds, 0.5));
  }
  free(speeds);
}

/// What is printed is the slower pair's: a sum would hide one that starves.
static void pairs(int rank, char* memory, float* halves, size_t size, double seconds) {
  double mine[3] = {0}, worst[3];
  transport_barrier();
  if (rank % 2 == 0) {
    const double begin = now_us();
    const size_t count =
        ping(memory, size, rank + 1, (size_t)-1, begin + seconds * 1e6, halves);
    mine[0] = (now_us() - begin) / 2 / (double)count;
    const size_t sampled = count < most_samples ? count : most_samples;
    qsort(halves, sampled, sizeof *halves, compare);
    mine[1] = quantile(halves, sampled, 0.5);
    mine[2] = quantile(halves, sampled, 0.99);
  } else {
    echo(memory, size, rank - 1);
  }
  transport_gather_greatest(mine, worst, 3);
  if (rank == 0) {
    printf("{\"size\": %zu, \"mean_us\": %.4g, \"p50_us\": %.4g, \"p99_us\": %.4g}\n",
           size, worst[0], worst[1], worst[2]);
  }
}

/// Says who may be struck. What any library does of an error is to end the waiter.
static void wait_for_nothing(int rank) {
  transport_barrier();
  printf("{\"%s\": %d}\n", rank == 0 ? "survivor" : "victim", (int)getpid());
  fflush(stdout);
  while (rank != 0) pause();
  char never;
  transport_receive(&never, 1, 1);
}

int main(int argc, char** argv) {
  alarm(limit_s);
  int rank;
  transport_open(&argc, &argv, &rank);
  if (argc == 2 && strcmp(argv[1], "wait") == 0) wait_for_nothing(rank);
  if (argc < 4) {
    fprintf(stderr,
            "usage: driver p2p SIZES ROUNDS PINGS | pairs SIZES SECONDS | wait\n");
    return 2;
  }
  const int is_p2p = strcmp(argv[1], "p2p") == 0;
  size_t sizes[most_sizes], largest = 1;
  int count = 0;
  for (char* s = strtok(argv[2], ","); s && count < most_sizes; s = strtok(NULL, ",")) {
    sizes[count] = strtoul(s, NULL, 10);
    if (sizes[count] > largest) largest = sizes[count];
    ++count;
  }
  const size_t bytes = largest * in_flight;
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
  transport_close();
  return 0;
}
