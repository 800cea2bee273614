// all_gather.cu: block s of every rank's recv = send of rank s. send may be
// block rank of recv.
#include "direct.cuh"

SHUNT_KERNEL_BYTES(shunt_all_gather_ll, shunt::gather_ll<false>)
SHUNT_KERNEL_BYTES(shunt_all_gather_ll128, shunt::gather_ll128<false>)
SHUNT_KERNEL_BYTES(shunt_all_gather_direct, shunt::gather_direct<false>)
