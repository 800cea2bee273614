// operation.hpp: what every collective passes.
#pragma once

#include "arguments.hpp"

namespace shunt_torch {

inline shunt_operation operation(shunt_collective collective, const void* send, void* recv, int64_t count,
                                 shunt_dtype dtype) {
  shunt_operation op = SHUNT_OPERATION_INIT;
  op.collective = collective;
  op.send = send;
  op.recv = recv;
  op.count = count;
  op.dtype = dtype;
  return op;
}

inline shunt_operation reduction(shunt_collective collective, const void* send, void* recv, int64_t count,
                                 const Reduction& r) {
  shunt_operation op = operation(collective, send, recv, count * r.size, r.dtype);
  op.op = r.op;
  op.scalar = r.scalar;
  return op;
}

}  // namespace shunt_torch
