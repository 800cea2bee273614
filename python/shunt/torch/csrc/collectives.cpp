// collectives.cpp: the collectives of one tensor a rank, or of a list of tensors of which each is one call.
#include "operation.hpp"
#include "submit.hpp"

namespace shunt_torch {

namespace {

// The job of one operation, which holds the tensors whose memory the operation takes.
template <class Call, class... Held>
auto one(const Call& call, shunt_operation op, const Held&... held) {
  return [call, op, held...](Communicator& communicator, void* stream) mutable {
    op.stream = stream;
    communicator.run(op, call.where, call.timeout);
  };
}

void checkSameKind(const at::Tensor& tensor, const char* name, const at::Tensor& like, const char* likeName,
                   const Where& where) {
  checkContiguous(tensor, name, where);
  checkContiguous(like, likeName, where);
  SHUNT_TORCH_CHECK_TYPE(tensor.scalar_type() == like.scalar_type(), where, "argument ", name, " has dtype ",
                         tensor.scalar_type(), "; expected ", like.scalar_type(), ", as ", likeName);
  SHUNT_TORCH_CHECK(tensor.device() == like.device(), where, "argument ", name, " is on ", tensor.device(),
                    "; expected ", like.device(), ", as ", likeName);
}

// Checks the tensors of a call that takes one piece of memory for all ranks, of size blocks, and one of one block.
void checkBlocks(const at::Tensor& whole, const char* wholeName, const at::Tensor& block, const char* blockName,
                 int size, const Where& where) {
  checkSameKind(whole, wholeName, block, blockName, where);
  SHUNT_TORCH_CHECK(whole.numel() == block.numel() * size, where, "argument ", wholeName, " has ", whole.numel(),
                    " elements; expected ", block.numel() * size, ": those of ", blockName, " for each of ", size,
                    " ranks");
}

// Checks the lists of a coalesced call: as many tensors in both, all on one device.
void checkLists(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs, const Where& where) {
  SHUNT_TORCH_CHECK(!inputs.empty(), where, "argument inputs is empty");
  SHUNT_TORCH_CHECK(outputs.size() == inputs.size(), where, "argument outputs has ", outputs.size(),
                    " tensors; expected ", inputs.size(), ", as inputs");
  for (size_t i = 0; i < inputs.size(); i++)
    SHUNT_TORCH_CHECK(inputs[i].device() == inputs[0].device(), where, "argument inputs[", i, "] is on ",
                      inputs[i].device(), "; expected ", inputs[0].device());
}

}  // namespace

WorkPtr ShuntBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  if (C10_UNLIKELY(tensors.size() == 1 && tensors[0].is_sparse())) return allreduce_sparse(tensors, opts);
  Call call{where("all_reduce"), OpType::ALLREDUCE, timeout(opts.timeout), opts.asyncOp};
  at::Tensor& tensor = only(tensors, "tensor", call.where);
  auto r = reductionOf(opts.reduceOp, tensor.scalar_type(), call.where);
  auto op = reduction(SHUNT_COLL_ALL_REDUCE, tensor.data_ptr(), tensor.data_ptr(), tensor.numel(), r);
  return submit(call, channel(tensor.device(), call.where), tensors, {}, one(call, op, tensor));
}

WorkPtr ShuntBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  EndsCoalescing onError{*this};
  Call call{where("all_reduce_coalesced"), OpType::ALLREDUCE_COALESCED, timeout(opts.timeout), opts.asyncOp};
  SHUNT_TORCH_CHECK(!tensors.empty(), call.where, "argument tensors is empty");
  checkAlike(tensors, tensors[0], "tensors", call.where);
  auto r = reductionOf(opts.reduceOp, tensors[0].scalar_type(), call.where);
  return submit(call, channel(tensors[0].device(), call.where), tensors, {},
                [call, tensors, r](Communicator& communicator, void* stream) {
    for (auto& tensor : tensors) {
      auto op = reduction(SHUNT_COLL_ALL_REDUCE, tensor.data_ptr(), tensor.data_ptr(), tensor.numel(), r);
      op.stream = stream;
      communicator.run(op, call.where, call.timeout);
    }
  });
}

WorkPtr ShuntBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  Call call{where("reduce"), OpType::REDUCE, timeout(opts.timeout), opts.asyncOp};
  at::Tensor& tensor = only(tensors, "tensor", call.where);
  checkRank(opts.rootRank, size_, "dst", call.where);
  auto r = reductionOf(opts.reduceOp, tensor.scalar_type(), call.where);
  auto op = reduction(SHUNT_COLL_REDUCE, tensor.data_ptr(), tensor.data_ptr(), tensor.numel(), r);
  op.root = static_cast<int32_t>(opts.rootRank);
  return submit(call, channel(tensor.device(), call.where), tensors, {}, one(call, op, tensor));
}

WorkPtr ShuntBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  Call call{where("broadcast"), OpType::BROADCAST, timeout(opts.timeout), opts.asyncOp};
  at::Tensor& tensor = only(tensors, "tensor", call.where);
  checkRank(opts.rootRank, size_, "src", call.where);
  auto elements = elementsOf(tensor.scalar_type());
  auto op = operation(SHUNT_COLL_BROADCAST, tensor.data_ptr(), tensor.data_ptr(), elements.of(tensor), elements.dtype);
  op.root = static_cast<int32_t>(opts.rootRank);
  return submit(call, channel(tensor.device(), call.where), tensors, {}, one(call, op, tensor));
}

WorkPtr ShuntBackend::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) {
  Call call{where("all_gather_into_tensor"), OpType::_ALLGATHER_BASE, timeout(opts.timeout), opts.asyncOp};
  checkBlocks(output, "output_tensor", input, "input_tensor", size_, call.where);
  auto elements = elementsOf(input.scalar_type());
  auto op = operation(SHUNT_COLL_ALL_GATHER, input.data_ptr(), output.data_ptr(), elements.of(input), elements.dtype);
  return submit(call, channel(input.device(), call.where), {output}, {input}, one(call, op, output, input));
}

WorkPtr ShuntBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                      const c10d::AllgatherOptions& opts) {
  EndsCoalescing onError{*this};
  Call call{where("all_gather_into_tensor_coalesced"), OpType::COALESCED, timeout(opts.timeout), opts.asyncOp};
  checkLists(outputs, inputs, call.where);
  for (size_t i = 0; i < inputs.size(); i++)
    checkBlocks(outputs[i], "outputs", inputs[i], "inputs", size_, call.where);
  return submit(call, channel(inputs[0].device(), call.where), outputs, inputs,
                [call, outputs, inputs](Communicator& communicator, void* stream) {
    for (size_t i = 0; i < inputs.size(); i++) {
      auto elements = elementsOf(inputs[i].scalar_type());
      auto op = operation(SHUNT_COLL_ALL_GATHER, inputs[i].data_ptr(), outputs[i].data_ptr(), elements.of(inputs[i]),
                          elements.dtype);
      op.stream = stream;
      communicator.run(op, call.where, call.timeout);
    }
  });
}

WorkPtr ShuntBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                           const c10d::ReduceScatterOptions& opts) {
  Call call{where("reduce_scatter_tensor"), OpType::_REDUCE_SCATTER_BASE, timeout(opts.timeout), opts.asyncOp};
  checkBlocks(input, "input", output, "output", size_, call.where);
  auto r = reductionOf(opts.reduceOp, input.scalar_type(), call.where);
  auto op = reduction(SHUNT_COLL_REDUCE_SCATTER, input.data_ptr(), output.data_ptr(), output.numel(), r);
  return submit(call, channel(input.device(), call.where), {output}, {input}, one(call, op, output, input));
}

WorkPtr ShuntBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                      const c10d::ReduceScatterOptions& opts) {
  EndsCoalescing onError{*this};
  Call call{where("reduce_scatter_tensor_coalesced"), OpType::COALESCED, timeout(opts.timeout), opts.asyncOp};
  checkLists(outputs, inputs, call.where);
  std::vector<Reduction> rs;
  for (size_t i = 0; i < inputs.size(); i++) {
    checkBlocks(inputs[i], "inputs", outputs[i], "outputs", size_, call.where);
    rs.push_back(reductionOf(opts.reduceOp, inputs[i].scalar_type(), call.where));
  }
  return submit(call, channel(inputs[0].device(), call.where), outputs, inputs,
                [call, outputs, inputs, rs](Communicator& communicator, void* stream) {
    for (size_t i = 0; i < inputs.size(); i++) {
      auto op =
          reduction(SHUNT_COLL_REDUCE_SCATTER, inputs[i].data_ptr(), outputs[i].data_ptr(), outputs[i].numel(), rs[i]);
      op.stream = stream;
      communicator.run(op, call.where, call.timeout);
    }
  });
}

namespace {

// The elements that go to, or come from, each rank: rows of splits, or equal blocks if there are none.
std::vector<int64_t> splitCounts(const at::Tensor& tensor, const std::vector<int64_t>& splits, int size,
                                 int64_t elementSize, const char* argument, const char* splitsName,
                                 const Where& where) {
  int64_t rows = tensor.dim() == 0 ? tensor.numel() : tensor.size(0);
  if (splits.empty()) {
    SHUNT_TORCH_CHECK(rows % size == 0, where, "argument ", argument, " has ", rows,
                      " rows; expected a multiple of the ", size, " ranks, or ", splitsName);
    return std::vector<int64_t>(size, tensor.numel() / size * elementSize);
  }
  SHUNT_TORCH_CHECK(splits.size() == static_cast<size_t>(size), where, "argument ", splitsName, " has ", splits.size(),
                    " entries; expected ", size, ", one for each rank");
  int64_t sum = 0;
  for (auto split : splits) {
    SHUNT_TORCH_CHECK(split >= 0 && split <= rows, where, "argument ", splitsName, " has an entry ", split,
                      "; expected 0 to ", rows, ", the rows of ", argument);
    sum += split;
  }
  SHUNT_TORCH_CHECK(sum == rows, where, "argument ", splitsName, " sums to ", sum, "; expected ", rows,
                    ", the rows of ", argument);
  int64_t row = (rows == 0 ? 0 : tensor.numel() / rows) * elementSize;
  std::vector<int64_t> counts;
  for (auto split : splits) counts.push_back(split * row);
  return counts;
}

}  // namespace

WorkPtr ShuntBackend::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& outputSplits,
                                    std::vector<int64_t>& inputSplits, const c10d::AllToAllOptions& opts) {
  Call call{where("all_to_all_single"), OpType::ALLTOALL_BASE, timeout(opts.timeout), opts.asyncOp};
  checkSameKind(output, "output", input, "input", call.where);
  auto elements = elementsOf(input.scalar_type());
  auto send = splitCounts(input, inputSplits, size_, elements.size, "input", "input_split_sizes", call.where);
  auto recv = splitCounts(output, outputSplits, size_, elements.size, "output", "output_split_sizes", call.where);
  if (inputSplits.empty() && outputSplits.empty()) {
    SHUNT_TORCH_CHECK(output.numel() == input.numel(), call.where, "argument output has ", output.numel(),
                      " elements; expected ", input.numel(), ", as input");
    auto op = operation(SHUNT_COLL_ALL_TO_ALL, input.data_ptr(), output.data_ptr(), send[0], elements.dtype);
    return submit(call, channel(input.device(), call.where), {output}, {input}, one(call, op, output, input));
  }
  auto op = operation(SHUNT_COLL_ALL_TO_ALL_V, input.data_ptr(), output.data_ptr(), 0, elements.dtype);
  return submit(call, channel(input.device(), call.where), {output}, {input},
                [call, output, input, op, send, recv](Communicator& communicator, void* stream) mutable {
                  op.stream = stream;
                  op.send_counts = send.data();
                  op.recv_counts = recv.data();
                  communicator.run(op, call.where, call.timeout);
                });
}

void ShuntBackend::alltoallOnDevice(at::Tensor& output, at::Tensor& input, const at::Tensor& outputSplits,
                                    const at::Tensor& inputSplits) {
  Call call{where("all_to_all_single"), OpType::ALLTOALL_BASE, timeout(c10d::kUnsetTimeout), false};
  checkSameKind(output, "output", input, "input", call.where);
  SHUNT_TORCH_CHECK(input.is_cuda(), call.where, "argument input is on ", input.device(),
                    "; expected a GPU, where split sizes are tensors of a GPU");
  for (auto& [splits, name] :
       {std::pair{&outputSplits, "output_split_sizes"}, std::pair{&inputSplits, "input_split_sizes"}}) {
    checkContiguous(*splits, name, call.where);
    SHUNT_TORCH_CHECK_TYPE(splits->scalar_type() == at::kLong, call.where, "argument ", name, " has dtype ",
                           splits->scalar_type(), "; expected Long");
    SHUNT_TORCH_CHECK(splits->device() == input.device(), call.where, "argument ", name, " is on ", splits->device(),
                      "; expected ", input.device(), ", as input");
    SHUNT_TORCH_CHECK(splits->numel() == size_, call.where, "argument ", name, " has ", splits->numel(),
                      " entries; expected ", size_, ", one for each rank");
  }
  auto elements = elementsOf(input.scalar_type());
  auto rowOf = [](const at::Tensor& t) { return t.dim() == 0 || t.size(0) == 0 ? int64_t{1} : t.numel() / t.size(0); };
  int64_t row = (input.numel() > 0 ? rowOf(input) : rowOf(output)) * elements.size;
  // Rows of nothing: their numbers reach past no memory.
  auto send = row == 0 ? inputSplits * 0 : inputSplits;
  auto recv = row == 0 ? outputSplits * 0 : outputSplits;
  auto op = operation(SHUNT_COLL_ALL_TO_ALL_V, input.data_ptr(), output.data_ptr(), row, elements.dtype);
  op.counts_on_device = 1;
  op.send_counts = send.data_ptr<int64_t>();
  op.recv_counts = recv.data_ptr<int64_t>();
  op.send_capacity = elements.of(input);
  op.recv_capacity = elements.of(output);
  (void)submit(call, channel(input.device(), call.where), {output}, {input}, one(call, op));
}

}  // namespace shunt_torch
