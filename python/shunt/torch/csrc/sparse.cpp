// sparse.cpp: all_reduce of sparse COO tensors. Ranks gather each other's indices and values, and add them up: how
// many each rank has is read on the host, so on GPUs the call waits for the stream and cannot be captured.
#include "lists.hpp"
#include "submit.hpp"

namespace shunt_torch {

namespace {

constexpr int64_t kMostDims = 16;

// What ranks must know of each other's tensor, as int64: entries, sparse dimensions, dimensions, sizes.
at::Tensor headerOf(const at::Tensor& tensor) {
  auto header = at::zeros({3 + kMostDims}, at::kLong);
  auto* at = header.data_ptr<int64_t>();
  *at++ = tensor._nnz();
  *at++ = tensor.sparse_dim();
  *at++ = tensor.dim();
  for (auto size : tensor.sizes()) *at++ = size;
  return header;
}

void checkHeader(const at::Tensor& theirs, const at::Tensor& ours, int peer, const Where& where) {
  auto kind = [](const at::Tensor& header) {
    auto* at = header.data_ptr<int64_t>();
    return c10::str("a tensor of sizes ", at::IntArrayRef(at + 3, at[2]), " with ", at[1], " sparse dimensions");
  };
  SHUNT_TORCH_CHECK(at::equal(theirs.narrow(0, 1, 2 + kMostDims), ours.narrow(0, 1, 2 + kMostDims)), where,
                    "argument tensor: rank ", peer, " has ", kind(theirs), "; expected ", kind(ours), ", as on rank ",
                    where.rank);
}

// Parts of one tensor, which has the entries of all ranks, by rank.
Tensors partsOf(const at::Tensor& whole, const std::vector<int64_t>& entries, int64_t each) {
  Tensors parts;
  int64_t at = 0;
  for (auto n : entries) {
    parts.push_back(whole.narrow(0, at, n * each));
    at += n * each;
  }
  return parts;
}

}  // namespace

WorkPtr ShuntBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  Call call{where("all_reduce"), OpType::_ALLREDUCE_SPARSE, timeout(opts.timeout), opts.asyncOp};
  SHUNT_TORCH_CHECK(tensors.size() == 1, call.where, "argument tensor has ", tensors.size(), " tensors; expected 1");
  at::Tensor& tensor = tensors[0];
  SHUNT_TORCH_CHECK(tensor.layout() == at::kSparse, call.where, "argument tensor is a ", tensor.layout(),
                    " tensor; expected a dense or a sparse COO one");
  SHUNT_TORCH_CHECK(tensor.dim() <= kMostDims, call.where, "argument tensor has ", tensor.dim(),
                    " dimensions; expected at most ", kMostDims);
  SHUNT_TORCH_CHECK_TYPE(opts.reduceOp == c10d::ReduceOp::SUM, call.where,
                         "argument op: expected ReduceOp.SUM, the only one for sparse tensors");
  return submit(call, channel(tensor.device(), call.where), tensors, {},
                [call, tensor, size = size_](Communicator& communicator, void* stream) mutable {
    at::NoGradGuard noGrad;
    auto gather = [&](const Tensors& outputs, const at::Tensor& input) {
      gatherList(communicator, outputs, input, call.where, call.timeout, stream);
    };
    at::Tensor own = tensor.coalesce();
    auto header = headerOf(own);
    auto headers = at::empty({size, header.numel()}, header.options().device(own.device()));
    gather(headers.unbind(0), header.to(own.device()));
    headers = headers.cpu();
    std::vector<int64_t> entries;
    int64_t total = 0;
    for (int rank = 0; rank < size; rank++) {
      checkHeader(headers[rank], header, rank, call.where);
      entries.push_back(headers[rank][0].item<int64_t>());
      total += entries.back();
    }
    // A rank's indices lie by entry, so that those of all ranks are one matrix.
    auto indices = own._indices().t().contiguous(), values = own._values().contiguous();
    auto allIndices = at::empty({total * own.sparse_dim()}, indices.options());
    gather(partsOf(allIndices, entries, own.sparse_dim()), indices.view(-1));
    auto sizes = values.sizes().vec();
    sizes[0] = total;
    auto allValues = at::empty(sizes, values.options());
    gather(partsOf(allValues, entries, 1), values);
    if (tensor.is_cuda()) // what it consists of is freed now, and may be of another stream
      markUsed(tensor, c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device()));
    tensor.copy_(
        at::sparse_coo_tensor(allIndices.view({total, own.sparse_dim()}).t(), allValues, own.sizes(), own.options())
            .coalesce());
  });
}

}  // namespace shunt_torch
