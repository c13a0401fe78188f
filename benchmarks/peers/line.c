// Prints what one cache line's way between CPUs 0 and 1 takes, in nanoseconds. Two
// processes pass it to each other, and do nothing else; the median of 32 parts of a run.
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { parts = 32, turns_of_part = 500 };

static void stay_on(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) perror("sched_setaffinity"), exit(1);
}

static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static int by_size(const void* a, const void* b) {
  const double left = *(const double*)a, right = *(const double*)b;
  return (left > right) - (left < right);
}

int main(void) {
  _Atomic uint64_t* const word = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
                                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (word == MAP_FAILED) return perror("mmap"), 1;
  const pid_t child = fork();
  // An alarm is not inherited.
  alarm(10);
  if (child < 0) return perror("fork"), 1;
  const int leads = child != 0;
  if (!leads) prctl(PR_SET_PDEATHSIG, SIGKILL);
  stay_on(leads ? 0 : 1);
  static double ns[parts];
  // The first part is not counted: it waits for the other process.
  for (uint64_t part = 0, turn = 0; part <= parts; ++part) {
    const double begin = now_ns();
    for (int i = 0; i < turns_of_part; ++i, turn += 2) {
      if (leads) atomic_store_explicit(word, turn + 1, memory_order_release);
      const uint64_t wanted = leads ? turn + 2 : turn + 1;
      while (atomic_load_explicit(word, memory_order_acquire) != wanted) {}
      if (!leads) atomic_store_explicit(word, turn + 2, memory_order_release);
    }
    if (part > 0) ns[part - 1] = (now_ns() - begin) / (2 * turns_of_part);
  }
  if (!leads) return 0;
  waitpid(child, NULL, 0);
  qsort(ns, parts, sizeof *ns, by_size);
  printf("{\"line_ns\": %.1f}\n", ns[parts / 2]);
  return 0;
}
