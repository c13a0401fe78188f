// The second rank of a library that has no launcher: a child of the first, in another
// network namespace if PEERS_FAR names one.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static inline pid_t start_far_rank(int* rank) {
  const pid_t child = fork();
  if (child < 0) perror("starting the second process"), exit(1);
  *rank = child == 0;
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const char* name = getenv("PEERS_FAR");
  if (!name) return child;
  char path[256];
  snprintf(path, sizeof path, "/run/netns/%s", name);
  const int space = open(path, O_RDONLY | O_CLOEXEC);
  if (space < 0 || setns(space, CLONE_NEWNET) != 0) perror(path), exit(1);
  close(space);
  return child;
}

/// Returns the rank's part of PEERS_ADDRESSES, which is "ADDRESS,ADDRESS"; loopback
/// without it.
static inline const char* address_of_rank(int rank) {
  static char text[128];
  const char* all = getenv("PEERS_ADDRESSES");
  if (!all) return "127.0.0.1";
  snprintf(text, sizeof text, "%s", all);
  char* comma = strchr(text, ',');
  if (!comma) return text;
  *comma = '\0';
  return rank == 0 ? text : comma + 1;
}
