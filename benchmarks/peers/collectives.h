// What collectives.c needs of a library. Any error ends the process with a message.
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum kind {
  broadcast,
  reduce,
  all_reduce,
  gather,
  all_gather,
  scatter,
  reduce_scatter,
  all_to_all,
  barrier,
  kinds
};

/// One collective, as often as it is run. The root is rank 0.
struct collective {
  enum kind kind;
  /// `whole` elements, of which each of the members has `part` where they are divided:
  /// floats, which are added up, or bytes, which are moved.
  size_t whole;
  size_t part;
  /// Of `broadcast` only `target` is used.
  const void* source;
  void* target;
};

/// Joins the others. Who has no launcher starts `*members` - 1 of them.
void peer_open(int* argc, char*** argv, int* rank, int* members);
void peer_close(void);

/// What may be done once for many runs.
void peer_prepare(const struct collective* c);
void peer_run(const struct collective* c);
void peer_barrier(void);
/// Gathers `count` numbers of each rank, in the order of ranks.
void peer_all_gather(const double* mine, double* all, int count);

#ifdef __cplusplus
}
#endif
