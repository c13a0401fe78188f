// Two processes, the second forked by the first; their addresses pass over a socket pair.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include "far_rank.h"
#include "transport.h"

static ucp_context_h context;
static ucp_worker_h worker;
static ucp_ep_h endpoint;
static ucs_status_ptr_t requests[in_flight];
static const ucp_request_param_t plain = {0};
static pid_t child;

static void check(ucs_status_t status, const char* what) {
  if (status == UCS_OK) return;
  fprintf(stderr, "UCX: %s: %s\n", what, ucs_status_string(status));
  exit(1);
}

static ucs_status_t status_of(ucs_status_ptr_t request) {
  if (!request) return UCS_OK;
  if (UCS_PTR_IS_ERR(request)) return UCS_PTR_STATUS(request);
  ucs_status_t status;
  while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS) {
    ucp_worker_progress(worker);
  }
  ucp_request_free(request);
  return status;
}

static void finish(ucs_status_ptr_t request, const char* what) {
  check(status_of(request), what);
}

static void exchange(int line, const void* mine, size_t size, void* theirs) {
  if (send(line, mine, size, MSG_NOSIGNAL) != (ssize_t)size ||
      recv(line, theirs, size, MSG_WAITALL) != (ssize_t)size) {
    perror("exchanging addresses");
    exit(1);
  }
}

static void connect_peer(int line) {
  ucp_address_t* own;
  size_t size, peer_size;
  check(ucp_worker_get_address(worker, &own, &size), "address");
  exchange(line, &size, sizeof size, &peer_size);
  char* mine = calloc(1, size + peer_size);
  char* theirs = calloc(1, size + peer_size);
  memcpy(mine, own, size);
  exchange(line, mine, size + peer_size, theirs);
  const ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                                  .address = (const ucp_address_t*)theirs};
  check(ucp_ep_create(worker, &params, &endpoint), "endpoint");
  ucp_worker_release_address(worker, own);
  free(mine);
  free(theirs);
}

void transport_open(int* argc, char*** argv, int* rank) {
  (void)argc;
  (void)argv;
  int lines[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, lines) != 0) {
    perror("a line to the second process");
    exit(1);
  }
  child = start_far_rank(rank);
  close(lines[!*rank]);
  ucp_config_t* config;
  check(ucp_config_read(NULL, NULL, &config), "configuration");
  const ucp_params_t features = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                 .features = UCP_FEATURE_TAG};
  check(ucp_init(&features, config, &context), "initialising");
  ucp_config_release(config);
  const ucp_worker_params_t single = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                      .thread_mode = UCS_THREAD_MODE_SINGLE};
  check(ucp_worker_create(context, &single, &worker), "worker");
  connect_peer(lines[*rank]);
  close(lines[*rank]);
}

void transport_close(void) {
  transport_barrier();
  const ucp_request_param_t flush = {0};
  // Over tcp the rank that closes first is a reset connection to the other.
  const ucs_status_t closed = status_of(ucp_ep_close_nbx(endpoint, &flush));
  if (closed != UCS_ERR_CONNECTION_RESET) check(closed, "closing");
  ucp_worker_destroy(worker);
  ucp_cleanup(context);
  int status = 0;
  if (child > 0 && (waitpid(child, &status, 0) != child || status != 0)) exit(1);
}

// One tag: between two ranks messages of one tag are in order.
static ucs_status_ptr_t start_send(const char* buffer, size_t size) {
  return ucp_tag_send_nbx(endpoint, buffer, size, 1, &plain);
}

static ucs_status_ptr_t start_receive(char* buffer, size_t size) {
  return ucp_tag_recv_nbx(worker, buffer, size, 1, UINT64_MAX, &plain);
}

void transport_send(const char* buffer, size_t size, int peer) {
  (void)peer;
  finish(start_send(buffer, size), "send");
}

void transport_receive(char* buffer, size_t size, int peer) {
  (void)peer;
  finish(start_receive(buffer, size), "receive");
}

void transport_start_send(int slot, const char* buffer, size_t size, int peer) {
  (void)peer;
  requests[slot] = start_send(buffer, size);
}

void transport_start_receive(int slot, char* buffer, size_t size, int peer) {
  (void)peer;
  requests[slot] = start_receive(buffer, size);
}

void transport_finish(int slot) {
  finish(requests[slot], "message");
  requests[slot] = NULL;
}

void transport_barrier(void) {
  char theirs;
  transport_start_send(0, "b", 1, 0);
  transport_receive(&theirs, 1, 0);
  transport_finish(0);
}

void transport_gather_greatest(const double* mine, double* greatest, int count) {
  // Of two ranks only the first measures.
  memcpy(greatest, mine, (size_t)count * sizeof *mine);
}
