/*
 * ucx.h: UCX as this package uses it: types written by hand and a table of functions found by dlsym. No header and
 * no library of UCX is needed to build. Only fields that a mask names are read by the library, so structures end
 * where the last field that is used here ends.
 */
#ifndef SHUNT_UCX_H
#define SHUNT_UCX_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>

#include "shunt_transport.h"

typedef int8_t ux_status; /* ucs_status_t, an enumeration of one byte */

enum {
  UX_OK = 0,
  UX_INPROGRESS = 1,
  UX_ERR_NO_MEMORY = -4,
  UX_ERR_UNREACHABLE = -6,
  UX_ERR_MESSAGE_TRUNCATED = -9,
  UX_ERR_BUSY = -15,
  UX_ERR_CANCELED = -16,
  UX_ERR_LAST = -100,
};

/* Which fields of a struct are set, as ucp_*_field says, and what they hold. */
enum {
  UX_PARAM_FEATURES = 1 << 0,
  UX_FEATURE_TAG = 1 << 0,
  UX_FEATURE_WAKEUP = 1 << 4,

  UX_WORKER_THREAD_MODE = 1 << 0,
  UX_THREAD_SERIALIZED = 1,

  UX_EP_ADDRESS = 1 << 0,
  UX_EP_ERROR_MODE = 1 << 1,
  UX_EP_ERROR_HANDLER = 1 << 2,
  UX_ERROR_MODE_PEER = 1, /* a peer's end is told */

  UX_OP_CALLBACK = 1 << 1,
  UX_OP_USER = 1 << 2,
  UX_OP_FLAGS = 1 << 4,
  UX_OP_NO_IMMEDIATE = 1 << 16, /* the callback is called in any case */

  UX_CLOSE_FORCE = 1 << 0,
};

typedef struct {
  uint64_t mask;
  uint64_t features;
} ux_params; /* ucp_params_t */

typedef struct {
  uint64_t mask;
  int32_t thread_mode;
} ux_worker_params; /* ucp_worker_params_t */

typedef struct {
  uint64_t mask;
  const void *address;
  int32_t error_mode;
  struct {
    void (*call)(void *argument, void *endpoint, ux_status status);
    void *argument;
  } error_handler;
} ux_ep_params; /* ucp_ep_params_t */

typedef struct {
  uint64_t tag;
  size_t length;
} ux_tag_info; /* ucp_tag_recv_info_t */

typedef struct {
  uint32_t mask;
  uint32_t flags;
  void *request;
  union {
    void (*send)(void *request, ux_status status, void *user);
    void (*recv)(void *request, ux_status status, const ux_tag_info *info, void *user);
  } done;
  uint64_t datatype;
  void *user;
} ux_request_param; /* ucp_request_param_t */

/* Functions of the library: X(name, result, prototype of arguments). */
#define UX_FUNCTIONS(X)                                                                                         \
  X(ucp_get_version, void, (unsigned *, unsigned *, unsigned *))                                                \
  X(ucp_init_version, ux_status, (unsigned, unsigned, const ux_params *, const void *, void **))                \
  X(ucp_config_read, ux_status, (const char *, const char *, void **))                                          \
  X(ucp_config_modify, ux_status, (void *, const char *, const char *))                                         \
  X(ucp_config_release, void, (void *))                                                                         \
  X(ucp_cleanup, void, (void *))                                                                                \
  X(ucp_worker_create, ux_status, (void *, const ux_worker_params *, void **))                                  \
  X(ucp_worker_destroy, void, (void *))                                                                         \
  X(ucp_worker_get_address, ux_status, (void *, void **, size_t *))                                             \
  X(ucp_worker_release_address, void, (void *, void *))                                                         \
  X(ucp_worker_get_efd, ux_status, (void *, int *))                                                             \
  X(ucp_worker_arm, ux_status, (void *))                                                                        \
  X(ucp_worker_progress, unsigned, (void *))                                                                    \
  X(ucp_ep_create, ux_status, (void *, const ux_ep_params *, void **))                                          \
  X(ucp_ep_close_nbx, void *, (void *, const ux_request_param *))                                               \
  X(ucp_tag_send_nbx, void *, (void *, const void *, size_t, uint64_t, const ux_request_param *))               \
  X(ucp_tag_recv_nbx, void *, (void *, void *, size_t, uint64_t, uint64_t, const ux_request_param *))           \
  X(ucp_request_cancel, void, (void *, void *))                                                                 \
  X(ucp_request_free, void, (void *))                                                                           \
  X(ucs_status_string, const char *, (ux_status))

typedef struct {
#define X(name, result, arguments) result(*name) arguments;
  UX_FUNCTIONS(X)
#undef X
} ux_table;

/* The names of these functions. */
int ux_count(void);
const char *ux_symbol(int number);

/* Open the library at a path and find its functions. 0, or -1 and a message. */
int ux_load(const char *path, ux_table *table, char *message, size_t bytes);

/* major * 1000 + minor. */
int ux_version(const ux_table *table);

/* The program's handlers of all signals, some of which UCX replaces: keep them before a call that does, and restore
 * those in whose place UCX's are then. */
#define UX_SIGNALS 64
typedef struct {
  struct sigaction of[UX_SIGNALS + 1];
} ux_handlers;
void ux_keep_handlers(ux_handlers *handlers);
void ux_restore_handlers(const ux_handlers *handlers);

/* What an endpoint has of UCX: a worker, and a connection to each rank. */
typedef struct ux_worker ux_worker;

/* A worker of a rank. memory is the endpoint's region, where exchanges find their tables, devices the network devices
 * that UCX is to use; "": as its variables say. */
shunt_status ux_open(const ux_table *table, int rank, int world, char *memory, const char *devices, ux_worker **out,
                     shunt_native_report *report);

/* The worker's address, which peers connect to. It is freed with ux_free_address. */
shunt_status ux_address(ux_worker *worker, void **address, size_t *bytes, shunt_native_report *report);
void ux_free_address(ux_worker *worker, void *address);

/* Make the connection to a rank. Messages establish it. */
shunt_status ux_connect(ux_worker *worker, int rank, const void *address, shunt_native_report *report);

/* The communicator has failed: requests end at their next poll. */
void ux_abort(ux_worker *worker);

/* Close the connections, for at most timeout milliseconds in peace, and free everything. SHUNT_TIMEOUT: requests still
 * hold the caller's memory, and nothing is freed. */
shunt_status ux_close(ux_worker *worker, int timeout);

/* Places of the messages of an exchange. */
enum { UX_SEND, UX_RECV, UX_MEMORY };

/* What a plan's step asks for; the context of start and poll. */
typedef struct ux_order {
  ux_worker *worker;
  int32_t kind;     /* UX_EXCHANGE, UX_MESSAGE_OUT or UX_MESSAGE_IN */
  int32_t out, in;  /* where what goes out lies, and where what comes in goes */
  uint64_t call;    /* what both ends of a collective's message must be in, but for the root */
  char name[64];    /* of the call, for errors */
} ux_order;

enum { UX_EXCHANGE, UX_MESSAGE_OUT, UX_MESSAGE_IN };

/* One rank's entry in the table of an exchange. Bytes of -1: no message. */
typedef struct {
  int64_t out_at, out_bytes, in_at, in_bytes;
} ux_entry;

/* Arguments of UX_EXCHANGE: offset of the table in memory, root. Of messages: rank, bytes. */
shunt_status ux_start(void *order, const int64_t *args, uint32_t count, const void *send, void *recv, void **request,
                      shunt_native_report *report);
shunt_status ux_poll(void *order, void *request, int32_t stop, shunt_native_report *report);

#endif
