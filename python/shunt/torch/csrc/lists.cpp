// lists.cpp: collectives of a list with one tensor for each rank. Tensors that lie one behind the other in memory,
// as those of chunk() do, are used where they are; others, and those in which the call's other tensor lies, go through
// a staging copy.
#include "lists.hpp"

#include "operation.hpp"
#include "submit.hpp"

namespace shunt_torch {

namespace {

// The one list of a list of lists, with a tensor for each rank.
Tensors& onlyList(TensorLists& lists, int size, const char* argument, const Where& where) {
  SHUNT_TORCH_CHECK(lists.size() == 1, where, "argument ", argument, " has ", lists.size(), " lists; expected 1");
  checkLength(lists[0].size(), size, argument, where);
  return lists[0];
}

void checkNumel(const Tensors& tensors, int64_t numel, const char* argument, const char* like, const Where& where) {
  for (size_t i = 0; i < tensors.size(); i++)
    SHUNT_TORCH_CHECK(tensors[i].numel() == numel, where, "argument ", argument, "[", i, "] has ", tensors[i].numel(),
                      " elements; expected ", numel, ", as ", like);
}

}  // namespace

void gatherList(Communicator& communicator, const Tensors& outputs, const at::Tensor& input, const Where& where,
                Milliseconds timeout, void* stream) {
  auto elements = elementsOf(input.scalar_type());
  Flat flat(outputs, input, where.rank);
  auto counts = flat.counts(elements.size);
  auto op = operation(even(outputs) ? SHUNT_COLL_ALL_GATHER : SHUNT_COLL_ALL_GATHER_V, input.data_ptr(), flat.data(),
                      elements.of(input), elements.dtype);
  op.stream = stream;
  op.recv_counts = counts.data();
  communicator.run(op, where, timeout);
  flat.scatter();
}

WorkPtr ShuntBackend::allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  Call call{where("all_gather"), OpType::ALLGATHER, timeout(opts.timeout), opts.asyncOp};
  at::Tensor& input = only(inputs, "tensor", call.where);
  checkContiguous(input, "tensor", call.where);
  Tensors& list = onlyList(outputs, size_, "tensor_list", call.where);
  checkAlike(list, input, "tensor_list", call.where);
  SHUNT_TORCH_CHECK(list[rank_].numel() == input.numel(), call.where, "argument tensor_list[", rank_, "] has ",
                    list[rank_].numel(), " elements; expected ", input.numel(), ", as tensor");
  return submit(call, channel(input.device(), call.where), list, inputs,
                [call, list, input](Communicator& communicator, void* stream) {
    gatherList(communicator, list, input, call.where, call.timeout, stream);
  });
}

WorkPtr ShuntBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  Call call{where("all_gather_coalesced"), OpType::ALLGATHER_COALESCED, timeout(opts.timeout), opts.asyncOp};
  SHUNT_TORCH_CHECK(!inputs.empty(), call.where, "argument input_tensor_list is empty");
  checkLength(outputs.size(), size_, "output_tensor_lists", call.where);
  TensorLists lists(inputs.size());  // by input, where torch's are by rank
  Tensors all;
  for (size_t r = 0; r < outputs.size(); r++) {
    SHUNT_TORCH_CHECK(outputs[r].size() == inputs.size(), call.where, "argument output_tensor_lists[", r, "] has ",
                      outputs[r].size(), " tensors; expected ", inputs.size(), ", as input_tensor_list");
    for (size_t i = 0; i < inputs.size(); i++) {
      lists[i].push_back(outputs[r][i]);
      all.push_back(outputs[r][i]);
    }
  }
  for (size_t i = 0; i < inputs.size(); i++) {
    checkContiguous(inputs[i], "input_tensor_list", call.where);
    SHUNT_TORCH_CHECK(inputs[i].device() == inputs[0].device(), call.where, "argument input_tensor_list[", i,
                      "] is on ", inputs[i].device(), "; expected ", inputs[0].device());
    checkAlike(lists[i], inputs[i], "output_tensor_lists", call.where);
    checkNumel(lists[i], inputs[i].numel(), "output_tensor_lists", "input_tensor_list", call.where);
  }
  return submit(call, channel(inputs[0].device(), call.where), all, inputs,
                [call, lists, inputs](Communicator& communicator, void* stream) {
                  for (size_t i = 0; i < inputs.size(); i++)
                    gatherList(communicator, lists[i], inputs[i], call.where, call.timeout, stream);
                });
}

WorkPtr ShuntBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& opts) {
  Call call{where("reduce_scatter"), OpType::REDUCE_SCATTER, timeout(opts.timeout), opts.asyncOp};
  at::Tensor& output = only(outputs, "output", call.where);
  checkContiguous(output, "output", call.where);
  Tensors& list = onlyList(inputs, size_, "input_list", call.where);
  checkAlike(list, output, "input_list", call.where);
  SHUNT_TORCH_CHECK(list[rank_].numel() == output.numel(), call.where, "argument output has ", output.numel(),
                    " elements; expected ", list[rank_].numel(), ", as input_list[", rank_, "]");
  auto r = reductionOf(opts.reduceOp, output.scalar_type(), call.where);
  return submit(call, channel(output.device(), call.where), outputs, list,
                [call, list, output, r](Communicator& communicator, void* stream) {
    Flat flat(list, output, call.where.rank);
    flat.gather();
    auto counts = flat.counts(r.size);
    auto op = reduction(even(list) ? SHUNT_COLL_REDUCE_SCATTER : SHUNT_COLL_REDUCE_SCATTER_V, flat.data(),
                        output.data_ptr(), output.numel(), r);
    op.stream = stream;
    op.send_counts = counts.data();
    communicator.run(op, call.where, call.timeout);
  });
}

WorkPtr ShuntBackend::gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) {
  Call call{where("gather"), OpType::GATHER, timeout(opts.timeout), opts.asyncOp};
  at::Tensor& input = only(inputs, "tensor", call.where);
  checkContiguous(input, "tensor", call.where);
  checkRank(opts.rootRank, size_, "dst", call.where);
  Tensors list;
  if (rank_ == opts.rootRank) {
    list = onlyList(outputs, size_, "gather_list", call.where);
    checkAlike(list, input, "gather_list", call.where);
    checkNumel(list, input.numel(), "gather_list", "tensor", call.where);
  } else {
    SHUNT_TORCH_CHECK(outputs.empty() || (outputs.size() == 1 && outputs[0].empty()), call.where,
                      "argument gather_list is given; expected it on the destination rank ", opts.rootRank, " alone");
  }
  int root = static_cast<int>(opts.rootRank);
  return submit(call, channel(input.device(), call.where), list, inputs,
                [call, list, input, root](Communicator& communicator, void* stream) {
    auto elements = elementsOf(input.scalar_type());
    Flat flat(list, input, root);
    auto op = operation(SHUNT_COLL_GATHER, input.data_ptr(), flat.data(), elements.of(input), elements.dtype);
    op.stream = stream;
    op.root = root;
    communicator.run(op, call.where, call.timeout);
    flat.scatter();
  });
}

WorkPtr ShuntBackend::scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) {
  Call call{where("scatter"), OpType::SCATTER, timeout(opts.timeout), opts.asyncOp};
  at::Tensor& output = only(outputs, "tensor", call.where);
  checkContiguous(output, "tensor", call.where);
  checkRank(opts.rootRank, size_, "src", call.where);
  Tensors list;
  if (rank_ == opts.rootRank) {
    list = onlyList(inputs, size_, "scatter_list", call.where);
    checkAlike(list, output, "scatter_list", call.where);
    checkNumel(list, output.numel(), "scatter_list", "tensor", call.where);
  } else {
    SHUNT_TORCH_CHECK(inputs.empty() || (inputs.size() == 1 && inputs[0].empty()), call.where,
                      "argument scatter_list is given; expected it on the source rank ", opts.rootRank, " alone");
  }
  int root = static_cast<int>(opts.rootRank);
  return submit(call, channel(output.device(), call.where), outputs, list,
                [call, list, output, root](Communicator& communicator, void* stream) {
    auto elements = elementsOf(output.scalar_type());
    Flat flat(list, output, root);
    flat.gather();
    auto op = operation(SHUNT_COLL_SCATTER, flat.data(), output.data_ptr(), elements.of(output), elements.dtype);
    op.stream = stream;
    op.root = root;
    communicator.run(op, call.where, call.timeout);
  });
}

WorkPtr ShuntBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) {
  Call call{where("all_to_all"), OpType::ALLTOALL, timeout(opts.timeout), opts.asyncOp};
  checkLength(outputs.size(), size_, "output_tensor_list", call.where);
  checkLength(inputs.size(), size_, "input_tensor_list", call.where);
  checkAlike(inputs, inputs[0], "input_tensor_list", call.where);
  checkAlike(outputs, inputs[0], "output_tensor_list", call.where);
  return submit(call, channel(inputs[0].device(), call.where), outputs, inputs,
                [call, outputs, inputs](Communicator& communicator, void* stream) {
    auto elements = elementsOf(inputs[0].scalar_type());
    Flat from(inputs), to(outputs, inputs);
    from.gather();
    auto send = from.counts(elements.size), recv = to.counts(elements.size);
    auto op = operation(SHUNT_COLL_ALL_TO_ALL_V, from.data(), to.data(), 0, elements.dtype);
    op.stream = stream;
    op.send_counts = send.data();
    op.recv_counts = recv.data();
    communicator.run(op, call.where, call.timeout);
    to.scatter();
  });
}

}  // namespace shunt_torch
