// What driver.c needs of a library: messages between ranks, by slot if several are under
// way. Any error ends the process with a message.
#pragma once

#include <stddef.h>

enum { in_flight = 4 };

/// Joins the others; `*rank` is the own one.
void transport_open(int* argc, char*** argv, int* rank);
void transport_close(void);

void transport_send(const char* buffer, size_t size, int peer);
void transport_receive(char* buffer, size_t size, int peer);

void transport_start_send(int slot, const char* buffer, size_t size, int peer);
void transport_start_receive(int slot, char* buffer, size_t size, int peer);
/// Until what was started in the slot, if anything, has ended.
void transport_finish(int slot);

void transport_barrier(void);
/// The greatest of each value, at rank 0.
void transport_gather_greatest(const double* mine, double* greatest, int count);
