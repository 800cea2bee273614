#include "arguments.hpp"

namespace shunt_torch {

namespace {

// Shunt's dtype of torch's, or -1.
int nativeDtype(at::ScalarType type) {
  switch (type) {
    case at::kChar: return SHUNT_DTYPE_INT8;
    case at::kByte: return SHUNT_DTYPE_UINT8;
    case at::kInt: return SHUNT_DTYPE_INT32;
    case at::kUInt32: return SHUNT_DTYPE_UINT32;
    case at::kLong: return SHUNT_DTYPE_INT64;
    case at::kUInt64: return SHUNT_DTYPE_UINT64;
    case at::kHalf: return SHUNT_DTYPE_FLOAT16;
    case at::kFloat: return SHUNT_DTYPE_FLOAT32;
    case at::kDouble: return SHUNT_DTYPE_FLOAT64;
    case at::kBFloat16: return SHUNT_DTYPE_BFLOAT16;
    case at::kFloat8_e4m3fn: return SHUNT_DTYPE_FLOAT8_E4M3;
    case at::kFloat8_e5m2: return SHUNT_DTYPE_FLOAT8_E5M2;
    default: return -1;
  }
}

const char* nameOf(c10d::ReduceOp::RedOpType op) {
  static const char* const names[] = {"SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"};
  return op < sizeof names / sizeof *names ? names[op] : "unknown";
}

[[noreturn]] void refusePair(const c10d::ReduceOp& op, at::ScalarType type, const Where& where) {
  TORCH_CHECK_TYPE(false, where.str(), ": argument op: ReduceOp.", nameOf(op), " is not defined for tensors of dtype ",
                   type);
  std::abort();  // not reached
}

double factorOf(const c10d::ReduceOp& op, const Where& where) {
  auto* supplement = dynamic_cast<c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  SHUNT_TORCH_CHECK(supplement != nullptr, where,
                    "argument op: PREMUL_SUM has no factor: make it with _make_nccl_premul_sum");
  return supplement->tensor_factor.defined() ? supplement->tensor_factor.item<double>() : supplement->double_factor;
}

}  // namespace

Elements elementsOf(at::ScalarType type) {
  int dtype = nativeDtype(type);
  if (dtype >= 0) return {static_cast<shunt_dtype>(dtype), 1};
  return {SHUNT_DTYPE_UINT8, static_cast<int64_t>(c10::elementSize(type))};
}

Reduction reductionOf(const c10d::ReduceOp& op, at::ScalarType type, const Where& where) {
  using c10d::ReduceOp;
  Reduction r{0, SHUNT_OP_SUM, 0, 1};
  if (type == at::kBool) {
    r.dtype = SHUNT_DTYPE_UINT8;
    switch (op.op_) {
      case ReduceOp::SUM:
      case ReduceOp::MAX:
      case ReduceOp::BOR: r.op = SHUNT_OP_MAX; return r;
      case ReduceOp::PRODUCT:
      case ReduceOp::MIN:
      case ReduceOp::BAND: r.op = SHUNT_OP_MIN; return r;
      default: refusePair(op, type, where);
    }
  }
  bool complex = c10::isComplexType(type);
  int dtype = nativeDtype(complex ? c10::toRealValueType(type) : type);
  if (dtype < 0) refusePair(op, type, where);
  r.dtype = static_cast<shunt_dtype>(dtype);
  r.size = complex ? 2 : 1;
  switch (op.op_) {
    case ReduceOp::SUM: r.op = SHUNT_OP_SUM; break;
    case ReduceOp::AVG: r.op = SHUNT_OP_AVG; break;
    case ReduceOp::PREMUL_SUM:
      r.op = SHUNT_OP_PREMUL_SUM;
      r.scalar = factorOf(op, where);
      break;
    case ReduceOp::PRODUCT: r.op = SHUNT_OP_PROD; break;
    case ReduceOp::MIN: r.op = SHUNT_OP_MIN; break;
    case ReduceOp::MAX: r.op = SHUNT_OP_MAX; break;
    default: refusePair(op, type, where);
  }
  if (complex && (r.op == SHUNT_OP_PROD || r.op == SHUNT_OP_MIN || r.op == SHUNT_OP_MAX)) refusePair(op, type, where);
  return r;
}

void checkDense(const at::Tensor& tensor, const char* argument, const Where& where) {
  SHUNT_TORCH_CHECK(tensor.defined(), where, "argument ", argument, " is an undefined tensor");
  SHUNT_TORCH_CHECK(tensor.layout() == at::kStrided, where, "argument ", argument, " is a ", tensor.layout(),
                    " tensor; expected a dense one");
  SHUNT_TORCH_CHECK(tensor.is_non_overlapping_and_dense(), where, "argument ", argument,
                    " is not contiguous; expected a tensor without gaps, as contiguous() makes one");
}

void checkContiguous(const at::Tensor& tensor, const char* argument, const Where& where) {
  checkDense(tensor, argument, where);
  SHUNT_TORCH_CHECK(tensor.is_contiguous(), where, "argument ", argument,
                    " is not contiguous; expected a tensor as contiguous() makes one");
}

at::Tensor& only(std::vector<at::Tensor>& tensors, const char* argument, const Where& where) {
  SHUNT_TORCH_CHECK(tensors.size() == 1, where, "argument ", argument, " has ", tensors.size(), " tensors; expected 1");
  checkDense(tensors[0], argument, where);
  return tensors[0];
}

void checkAlike(const std::vector<at::Tensor>& tensors, const at::Tensor& like, const char* argument,
                const Where& where) {
  for (size_t i = 0; i < tensors.size(); i++) {
    auto& tensor = tensors[i];
    checkContiguous(tensor, c10::str(argument, "[", i, "]").c_str(), where);
    SHUNT_TORCH_CHECK_TYPE(tensor.scalar_type() == like.scalar_type(), where, "argument ", argument, "[", i,
                           "] has dtype ", tensor.scalar_type(), "; expected ", like.scalar_type());
    SHUNT_TORCH_CHECK(tensor.device() == like.device(), where, "argument ", argument, "[", i, "] is on ",
                      tensor.device(), "; expected ", like.device());
  }
}

void checkLength(size_t length, int size, const char* argument, const Where& where) {
  SHUNT_TORCH_CHECK(length == static_cast<size_t>(size), where, "argument ", argument, " has ", length,
                    " tensors; expected ", size, ", one for each rank");
}

void checkRank(int64_t rank, int size, const char* argument, const Where& where) {
  SHUNT_TORCH_CHECK(rank >= 0 && rank < size, where, "argument ", argument, " is ", rank, "; expected 0 to ", size - 1);
}

bool even(const std::vector<at::Tensor>& tensors) {
  for (auto& tensor : tensors)
    if (tensor.numel() != tensors[0].numel()) return false;
  return true;
}

Flat::Flat(const std::vector<at::Tensor>& tensors, at::TensorList others, size_t inPlace)
    : tensors_(tensors), data_(nullptr) {
  if (tensors_.empty()) return;
  int64_t total = 0;
  bool adjacent = true;
  auto* first = static_cast<char*>(tensors_[0].data_ptr());
  for (auto& tensor : tensors_) {
    adjacent = adjacent && tensor.is_alias_of(tensors_[0]) &&
               static_cast<char*>(tensor.data_ptr()) == first + total * tensor.itemsize();
    total += tensor.numel();
  }
  auto* end = first + total * tensors_[0].itemsize();
  for (auto& other : others) {
    auto* data = static_cast<char*>(other.data_ptr());
    bool own = inPlace < tensors_.size() && data == tensors_[inPlace].data_ptr();
    adjacent = adjacent && (own || data >= end || data + other.nbytes() <= first);
  }
  if (!adjacent) staging_ = at::empty({total}, tensors_[0].options());
  data_ = adjacent ? first : staging_.data_ptr();
}

void Flat::gather() {
  if (!staging_.defined()) return;
  int64_t at = 0;
  for (auto& tensor : tensors_) {
    staging_.narrow(0, at, tensor.numel()).copy_(tensor.reshape(-1), true);
    at += tensor.numel();
  }
}

void Flat::scatter() {
  if (!staging_.defined()) return;
  int64_t at = 0;
  for (auto& tensor : tensors_) {
    tensor.view(-1).copy_(staging_.narrow(0, at, tensor.numel()), true);
    at += tensor.numel();
  }
}

std::vector<int64_t> Flat::counts(int64_t size) const {
  std::vector<int64_t> counts;
  for (auto& tensor : tensors_) counts.push_back(tensor.numel() * size);
  return counts;
}

}  // namespace shunt_torch
