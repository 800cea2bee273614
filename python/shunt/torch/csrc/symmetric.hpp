// symmetric.hpp: symm_mem of torch.distributed on memory that Shunt's ranks map.
#pragma once

namespace shunt_torch {

// Offers it to torch as the backend SHUNT: symm_mem.set_backend("SHUNT").
void offerSymmetricMemory();

}  // namespace shunt_torch
