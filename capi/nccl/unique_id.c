/*
 * unique_id.c: see unique_id.h.
 */
#include "unique_id.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "library.h"
#include "real.h"

static const char prefix[] = "shunt1", letters[] = "abcdefghijklmnopqrstuvwxyz234567";
static const char magic[4] = {'S', 'H', 'I', 'D'}; /* how the bytes of every id of Shunt begin */

enum { LENGTH_AT = NC_UNIQUE_ID_BYTES - 1, LONGEST = LENGTH_AT };

/* decode reads letters into bytes; it returns how many, or -1. */
static int decode(const char *text, unsigned char *bytes) {
  unsigned bits = 0, buffer = 0;
  int count = 0;
  for (; *text != 0; text++) {
    const char *letter = strchr(letters, *text);
    if (letter == NULL)
      return -1;
    buffer = buffer << 5 | (unsigned)(letter - letters);
    bits += 5;
    if (bits >= 8) {
      if (count == LONGEST)
        return -1;
      bits -= 8;
      bytes[count++] = (unsigned char)(buffer >> bits);
    }
  }
  return count;
}

static void encode(const unsigned char *bytes, int count, char *text) {
  unsigned bits = 0, buffer = 0;
  for (int i = 0; i < count; i++) {
    buffer = buffer << 8 | bytes[i];
    for (bits += 8; bits >= 5;) {
      bits -= 5;
      *text++ = letters[buffer >> bits & 31];
    }
  }
  if (bits > 0)
    *text++ = letters[buffer << (5 - bits) & 31];
  *text = 0;
}

uint64_t nc_random(void) {
  uint64_t number;
  if (getentropy(&number, sizeof number) == 0)
    return number;
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (uint64_t)t.tv_nsec << 32 ^ (uint64_t)t.tv_sec << 16 ^ (uint64_t)getpid();
}

bool nc_id_is_ours(const ncclUniqueId *id) { return id != NULL && memcmp(id->internal, magic, sizeof magic) == 0; }

ncclResult_t nc_id_text(ncclComm_t comm, const ncclUniqueId *id, char *text, size_t capacity) {
  unsigned char bytes[NC_UNIQUE_ID_BYTES];
  memcpy(bytes, id->internal, sizeof bytes);
  if (memcmp(bytes, magic, sizeof magic) != 0 || bytes[LENGTH_AT] > LONGEST ||
      sizeof prefix + (size_t)bytes[LENGTH_AT] * 8 / 5 + 1 > capacity)
    return nc_fail(comm, ncclInvalidArgument,
                   "the unique id is not one of Shunt's: rank 0 has to use this library too, "
                   "and SHUNT_NCCL_FORWARD has to be equal on all ranks");
  memcpy(text, prefix, sizeof prefix - 1);
  encode(bytes, bytes[LENGTH_AT], text + sizeof prefix - 1);
  return ncclSuccess;
}

/* With this variable NCCL gives every rank that asks the same id. */
static void warn_of_comm_id(void) {
  const char *value = getenv("NCCL_COMM_ID");
  if (value != NULL && value[0] != 0)
    nc_log("warn", "NCCL_COMM_ID=%s is not used: every call of ncclGetUniqueId makes another id; call it on rank 0 "
           "alone and send the id to the other ranks, or set SHUNT_NCCL_FORWARD=all", value);
}

ncclResult_t nc_GetUniqueId(ncclUniqueId *id) {
  static pthread_once_t warned = PTHREAD_ONCE_INIT;
  char text[SHUNT_UNIQUE_ID_BYTES];
  if (id == NULL)
    return nc_fail_alone(NULL, ncclInvalidArgument, "ncclGetUniqueId: uniqueId is NULL");
  ncclResult_t result = nc_check_settings();
  if (result != ncclSuccess)
    return result;
  if (nc_settings()->forward) {
    if (nc_real(NC_ncclGetUniqueId) == NULL)
      return nc_lacks(NULL, NC_ncclGetUniqueId);
    return nc_came(NULL, NC_REAL(ncclGetUniqueId)(id));
  }
  pthread_once(&warned, warn_of_comm_id);
  result = nc_open_shunt(NULL);
  if (result != ncclSuccess)
    return result;
  shunt_status status = nc_shunt.get_unique_id_(text, sizeof text);
  if (status != SHUNT_OK)
    return nc_shunt_failed(NULL, status);
  unsigned char bytes[NC_UNIQUE_ID_BYTES] = {0};
  int count = strncmp(text, prefix, sizeof prefix - 1) == 0 ? decode(text + sizeof prefix - 1, bytes) : -1;
  if (count < 0)
    return nc_fail(NULL, ncclInternalError,
                   "ncclGetUniqueId: Shunt's id %.6s... has another form than this library knows", text);
  bytes[LENGTH_AT] = (unsigned char)count;
  memcpy(id->internal, bytes, sizeof bytes);
  return ncclSuccess;
}
