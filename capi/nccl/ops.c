/*
 * ops.c: ncclRedOpCreatePreMulSum. An operation is a number: those of Shunt, then places in a list of the
 * communicator's, which have other numbers in each communicator, so that one is not taken for another's.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "real.h"

enum { MOST_OPS = (INT32_MAX - NC_BUILTIN_OPS) / NC_COMMUNICATORS / 8 * 8 };

/* widen converts a float with the given numbers of exponent and fraction bits to a double. The largest exponent is that
 * of infinity and NaN; in float8_e4m3, which has no infinity, only its largest fraction is NaN. */
static double widen(unsigned bits, int exponent_bits, int fraction_bits) {
  int sign = (int)(bits >> (exponent_bits + fraction_bits)) & 1;
  int exponent = (int)(bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  double fraction = (double)(bits & ((1u << fraction_bits) - 1)) / (double)(1u << fraction_bits);
  bool top = exponent == (1 << exponent_bits) - 1, e4m3 = exponent_bits == 4;
  if (top && (e4m3 ? (bits & 7) == 7 : fraction != 0))
    return NAN;
  if (top && !e4m3)
    return sign ? -INFINITY : INFINITY;
  int bias = (1 << (exponent_bits - 1)) - 1;
  double value = exponent == 0 ? fraction : 1 + fraction;
  for (int power = (exponent == 0 ? 1 : exponent) - bias; power != 0; power += power > 0 ? -1 : 1)
    value = power > 0 ? value * 2 : value / 2;
  return sign ? -value : value;
}

/* read_scalar is the value at memory; false if a double cannot hold it. */
static bool read_scalar(const void *memory, ncclDataType_t dtype, double *scalar) {
  union {
    int8_t i8;
    uint8_t u8;
    uint16_t u16;
    int32_t i32;
    uint32_t u32;
    int64_t i64;
    uint64_t u64;
    float f32;
    double f64;
  } value;
  static const size_t sizes[NC_DATA_TYPES] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  memcpy(&value, memory, sizes[dtype]);
  switch (dtype) {
  case SHUNT_DTYPE_INT8:
    *scalar = value.i8;
    break;
  case SHUNT_DTYPE_UINT8:
    *scalar = value.u8;
    break;
  case SHUNT_DTYPE_INT32:
    *scalar = value.i32;
    break;
  case SHUNT_DTYPE_UINT32:
    *scalar = value.u32;
    break;
  case SHUNT_DTYPE_INT64:
    *scalar = (double)value.i64;
    return value.i64 >= -(INT64_C(1) << 53) && value.i64 <= INT64_C(1) << 53;
  case SHUNT_DTYPE_UINT64:
    *scalar = (double)value.u64;
    return value.u64 <= UINT64_C(1) << 53;
  case SHUNT_DTYPE_FLOAT16:
    *scalar = widen(value.u16, 5, 10);
    break;
  case SHUNT_DTYPE_FLOAT32:
    *scalar = (double)value.f32;
    break;
  case SHUNT_DTYPE_FLOAT64:
    *scalar = value.f64;
    break;
  case SHUNT_DTYPE_BFLOAT16:
    value.u32 = (uint32_t)value.u16 << 16;
    *scalar = (double)value.f32;
    break;
  case SHUNT_DTYPE_FLOAT8_E4M3:
    *scalar = widen(value.u8, 4, 3);
    break;
  default:
    *scalar = widen(value.u8, 5, 2);
    break;
  }
  return true;
}

ncclResult_t nc_RedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t dtype,
                                     ncclScalarResidence_t residence, ncclComm_t comm) {
  static const char name[] = "ncclRedOpCreatePreMulSum";
  if (!nc_can_queue(comm))
    return nc_reject(comm, name);
  if (op == NULL || scalar == NULL)
    return nc_fail(comm, ncclInvalidArgument, "%s: %s is NULL", name, op == NULL ? "op" : "scalar");
  if ((unsigned)dtype >= NC_DATA_TYPES)
    return nc_fail(comm, ncclInvalidArgument, "%s: data type %d is unknown", name, dtype);
  if (residence != NC_SCALAR_HOST && residence != NC_SCALAR_DEVICE)
    return nc_fail(comm, ncclInvalidArgument, "%s: residence %d is unknown", name, residence);
  struct nc_op made = {.dtype = dtype, .used = true};
  if (residence == NC_SCALAR_DEVICE && !nc_settings()->pairs)
    return nc_fail(comm, ncclInvalidUsage, "%s: Shunt takes no scalar in device memory; pass it with "
                   "ncclScalarHostImmediate, or set SHUNT_NCCL_FORWARD=unsupported", name);
  made.only_real = residence == NC_SCALAR_DEVICE;
  if (!made.only_real && !read_scalar(scalar, dtype, &made.scalar))
    return nc_fail(comm, ncclInvalidUsage, "%s: the scalar is above 2^53, more than Shunt takes exactly", name);
  if (made.only_real || (comm->real != NULL && nc_settings()->listed)) {
    ncclComm_t real = nc_real_or_make(comm, NC_ncclRedOpCreatePreMulSum);
    if (real == NULL)
      return nc_unserved(comm, NC_ncclRedOpCreatePreMulSum);
    if (nc_real(NC_ncclRedOpCreatePreMulSum) == NULL)
      return nc_lacks(comm, NC_ncclRedOpCreatePreMulSum);
    ncclResult_t result = nc_came(comm, NC_REAL(ncclRedOpCreatePreMulSum)(&made.real, scalar, dtype, residence, real));
    if (result != ncclSuccess)
      return result;
    made.in_real = true;
  }
  pthread_mutex_lock(&comm->lock);
  int at = 0;
  while (at < comm->op_count && comm->ops[at].used)
    at++;
  if (at == comm->op_count) {
    struct nc_op *grown = at < MOST_OPS ? realloc(comm->ops, (size_t)(at + 8) * sizeof *grown) : NULL;
    if (grown == NULL) {
      pthread_mutex_unlock(&comm->lock);
      return nc_fail(comm, ncclSystemError, "%s: no memory for %d operations", name, at + 1);
    }
    memset(grown + at, 0, 8 * sizeof *grown);
    comm->ops = grown;
    comm->op_count = at + 8;
  }
  comm->ops[at] = made;
  pthread_mutex_unlock(&comm->lock);
  *op = NC_BUILTIN_OPS + at * NC_COMMUNICATORS + (int)(comm - nc_comms);
  return ncclSuccess;
}

/* look is the operation's place, with its communicator locked; NULL if there is none. */
static struct nc_op *look(ncclComm_t comm, ncclRedOp_t op) {
  if (op < NC_BUILTIN_OPS || (op - NC_BUILTIN_OPS) % NC_COMMUNICATORS != comm - nc_comms)
    return NULL;
  int at = (op - NC_BUILTIN_OPS) / NC_COMMUNICATORS;
  return at < comm->op_count && comm->ops[at].used ? &comm->ops[at] : NULL;
}

ncclResult_t nc_RedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  if (!nc_can_queue(comm) && !nc_is_finalized(comm))
    return nc_reject(comm, "ncclRedOpDestroy");
  pthread_mutex_lock(&comm->lock);
  struct nc_op *found = look(comm, op);
  struct nc_op was = {0};
  if (found != NULL) {
    was = *found;
    found->used = false;
  }
  pthread_mutex_unlock(&comm->lock);
  if (was.in_real && nc_real(NC_ncclRedOpDestroy) != NULL)
    return nc_came(comm, NC_REAL(ncclRedOpDestroy)(was.real, nc_any_real(comm)));
  return found != NULL
             ? ncclSuccess
             : nc_fail(comm, ncclInvalidArgument, "ncclRedOpDestroy: the communicator has no operation %d", op);
}

ncclResult_t nc_find_op(ncclComm_t comm, ncclRedOp_t op, ncclDataType_t dtype, shunt_operation *operation,
                        const char *function) {
  struct nc_op found = {0};
  pthread_mutex_lock(&comm->lock);
  struct nc_op *at = look(comm, op);
  if (at != NULL)
    found = *at;
  pthread_mutex_unlock(&comm->lock);
  if (!found.used && !nc_can_queue(comm)) /* another thread has ended it */
    return nc_reject(comm, function);
  if (!found.used)
    return nc_fail(comm, ncclInvalidArgument, "%s on rank %d: reduction operation %d is unknown", function, comm->rank,
                   op);
  if (found.dtype != dtype)
    return nc_fail(comm, ncclInvalidArgument,
                   "%s on rank %d: reduction operation %d is one of data type %d, the call's is %d", function,
                   comm->rank, op, found.dtype, dtype);
  if (found.only_real) /* nc_find_real_op takes it */
    return nc_reject(comm, function);
  operation->op = SHUNT_OP_PREMUL_SUM;
  operation->scalar = found.scalar;
  return ncclSuccess;
}

/* A call whose operation the real NCCL alone has goes there, whatever SHUNT_NCCL_FORWARD says of the function. */
ncclComm_t nc_find_real_op(ncclComm_t comm, ncclComm_t real, ncclRedOp_t *op) {
  struct nc_op found = {0};
  pthread_mutex_lock(&comm->lock);
  struct nc_op *at = look(comm, *op);
  if (at != NULL)
    found = *at;
  pthread_mutex_unlock(&comm->lock);
  if (!found.used || !found.in_real)
    return NULL; /* nc_find_op takes it, or says that there is none */
  if (real == NULL && found.only_real && nc_can_queue(comm))
    real = nc_group_enters(comm);
  if (real != NULL)
    *op = found.real;
  return real;
}

void nc_forget_ops(ncclComm_t comm) {
  pthread_mutex_lock(&comm->lock); /* other threads may call still */
  free(comm->ops);
  comm->ops = NULL;
  comm->op_count = 0;
  pthread_mutex_unlock(&comm->lock);
}
