// lists.hpp: what collectives of lists share with others.
#pragma once

#include "arguments.hpp"
#include "communicator.hpp"

namespace shunt_torch {

// One all_gather into a list; lists of tensors of different lengths are an all_gather_v on every rank.
void gatherList(Communicator& communicator, const std::vector<at::Tensor>& outputs, const at::Tensor& input,
                const Where& where, Milliseconds timeout, void* stream);

}  // namespace shunt_torch
