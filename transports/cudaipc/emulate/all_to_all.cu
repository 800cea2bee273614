// all_to_all.cu: block s of recv = block rank of rank s's send. send may equal
// recv.
#include "direct.cuh"

SHUNT_KERNEL_BYTES(shunt_all_to_all_ll, shunt::gather_ll<true>)
SHUNT_KERNEL_BYTES(shunt_all_to_all_ll128, shunt::gather_ll128<true>)
SHUNT_KERNEL_BYTES(shunt_all_to_all_direct, shunt::gather_direct<true>)
