// The question of `mwbench collectives`, asked of another library through collectives.h:
// the same counts, clock, buffers and checks. One JSON object a size, by rank 0.
//   collectives KIND SIZES SECONDS MEMBERS
#define _GNU_SOURCE
#include "collectives.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { most_sizes = 32, least_calls = 5, most_calls = 20000, limit_s = 300 };

static const char* const names[kinds] = {"broadcast",      "reduce",     "all_reduce",
                                         "gather",         "all_gather", "scatter",
                                         "reduce_scatter", "all_to_all", "barrier"};

static int rank, members = 2;

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

/// With a CPU for each, one for each.
static void pin(void) {
  if (members > sysconf(_SC_NPROCESSORS_ONLN)) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET((size_t)rank, &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) perror("pinning to a CPU");
}

static int adds(enum kind kind) {
  return kind == reduce || kind == all_reduce || kind == reduce_scatter;
}
static int divides(enum kind kind) { return kind >= gather && kind < barrier; }

/// Small enough for sums to be exact.
static int value_of(int of_rank, size_t i) {
  return (int)((i + (size_t)of_rank * 5) % 61);
}

/// What element i of this member's target is, or -1 where it gets none.
static int expected(const struct collective* c, size_t i) {
  const size_t own = (size_t)rank * c->part;
  int sum = 0;
  switch (c->kind) {
    case reduce:
    case all_reduce:
      for (int r = 0; r < members; ++r) sum += value_of(r, i);
      return c->kind == reduce && rank != 0 ? -1 : sum;
    case reduce_scatter:
      for (int r = 0; r < members; ++r) sum += value_of(r, own + i);
      return i < c->part ? sum : -1;
    case broadcast:
      return value_of(0, i);
    case scatter:
      return i < c->part ? value_of(0, own + i) : -1;
    case gather:
    case all_gather:
      if (c->kind == gather && rank != 0) return -1;
      return value_of((int)(i / c->part), i % c->part);
    case all_to_all:
      return value_of((int)(i / c->part), own + i % c->part);
    default:
      return -1;
  }
}

static void fill(const struct collective* c, void* memory) {
  for (size_t i = 0; i < c->whole; ++i) {
    if (adds(c->kind)) {
      ((float*)memory)[i] = (float)value_of(rank, i);
    } else {
      ((char*)memory)[i] = (char)value_of(rank, i);
    }
  }
}

static void check(const struct collective* c) {
  for (size_t i = 0; i < c->whole; ++i) {
    const int wanted = expected(c, i);
    if (wanted < 0) continue;
    const int got =
        adds(c->kind) ? (int)((const float*)c->target)[i] : ((const char*)c->target)[i];
    if (got == wanted) continue;
    fprintf(stderr, "%s: element %zu of rank %d is %d, not %d\n", names[c->kind], i, rank,
            got, wanted);
    exit(1);
  }
}

/// `count` calls; each begins when all members are ready for it.
static void calls(const struct collective* c, size_t count, double* times) {
  for (size_t i = 0; i < count; ++i) {
    if (c->kind != barrier) peer_barrier();
    const double begin = now_us();
    peer_run(c);
    times[i] = now_us() - begin;
  }
}

/// As many as fit into the time, as rank 0 finds by calls that last an eighth of it, and
/// not by the first ones unless those fill it.
static size_t count_for(const struct collective* c, double seconds, double* times) {
  const size_t growth = 8;
  size_t count = least_calls;
  for (double enough = seconds * 1e6;; enough = seconds * 1e6 / (double)growth) {
    double all[64];
    const double begin = now_us();
    calls(c, count, times);
    const double took = now_us() - begin;
    peer_all_gather(&took, all, 1);
    const double fit = seconds * 1e6 * (double)count / all[0];
    const size_t fitting = fit < least_calls  ? least_calls
                           : fit > most_calls ? most_calls
                                              : (size_t)fit;
    if (all[0] > enough || count >= fitting) return fitting;
    count = fitting < growth * count ? fitting : growth * count;
  }
}

static void measure(const struct collective* c, size_t size, double seconds,
                    double* times) {
  const size_t count = count_for(c, seconds, times);
  peer_barrier();
  calls(c, count, times);
  double mine[3] = {0}, all[3 * 64];
  for (size_t i = 0; i < count; ++i) mine[0] += times[i] / (double)count;
  qsort(times, count, sizeof *times, compare);
  mine[1] = times[count / 2];
  mine[2] = times[(count - 1) * 99 / 100];
  peer_all_gather(mine, all, 3);
  if (rank != 0) return;
  // The mean of all members, and the slowest's quantiles.
  double mean = 0, p50 = 0, p99 = 0;
  for (const double* of = all; of < all + 3 * members; of += 3) {
    mean += of[0] / members;
    if (of[1] > p50) p50 = of[1];
    if (of[2] > p99) p99 = of[2];
  }
  printf("{\"size\": %zu, \"time_us\": %.4g, \"p50_us\": %.4g, \"p99_us\": %.4g}\n", size,
         mean, p50, p99);
}

static enum kind kind_named(const char* name) {
  int kind = 0;
  while (kind < kinds && strcmp(names[kind], name) != 0) ++kind;
  return (enum kind)kind;
}

int main(int argc, char** argv) {
  alarm(limit_s);
  if (argc > 4) members = atoi(argv[4]);
  peer_open(&argc, &argv, &rank, &members);
  const enum kind kind = argc > 3 ? kind_named(argv[1]) : kinds;
  if (kind == kinds || members > 64) {
    fprintf(stderr, "usage: collectives KIND SIZES SECONDS MEMBERS\n");
    return 2;
  }
  pin();
  double* times = malloc(most_calls * sizeof *times);
  char* next = argv[2];
  for (char* s; (s = strtok_r(NULL, ",", &next));) {
    const size_t size = strtoul(s, NULL, 10);
    const size_t element = adds(kind) ? sizeof(float) : 1;
    const size_t parts = divides(kind) ? (size_t)members : 1;
    // At least an element for each.
    const size_t part = size / element < parts ? 1 : size / element / parts;
    struct collective c = {kind, part * parts, part, NULL, NULL};
    void* source = malloc(c.whole * element);
    c.source = source;
    c.target = malloc(c.whole * element);
    fill(&c, source);
    fill(&c, c.target);
    peer_prepare(&c);
    peer_run(&c);
    check(&c);
    measure(&c, size, atof(argv[3]), times);
    free(source);
    free(c.target);
  }
  free(times);
  peer_close();
  return 0;
}
