// arguments.hpp: torch's tensors, dtypes and reduction ops as Shunt's, and what is refused.
#pragma once

#include <ATen/ATen.h>

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "errors.hpp"

namespace shunt_torch {

// Elements as Shunt moves them: a dtype of its own, or bytes where it has none (bool, complex, int16 ...).
struct Elements {
  shunt_dtype dtype;
  int64_t size;  // of Shunt's elements in one of torch's

  int64_t of(const at::Tensor& tensor) const { return tensor.numel() * size; }
};
Elements elementsOf(at::ScalarType type);

// A reduction as Shunt does it. Complex numbers are added as pairs of reals; bool is reduced as bytes of 0 and 1.
struct Reduction {
  shunt_dtype dtype;
  shunt_op op;
  double scalar;
  int64_t size;  // of Shunt's elements in one of torch's
};
// Throws TypeError for a dtype, or a pair, that is not reduced.
Reduction reductionOf(const c10d::ReduceOp& op, at::ScalarType type, const Where& where);

// Throws unless tensor is dense: strided, and without gaps or overlap.
void checkDense(const at::Tensor& tensor, const char* argument, const Where& where);

// checkDense, and in the order of its elements, as memory that is cut into blocks has to be.
void checkContiguous(const at::Tensor& tensor, const char* argument, const Where& where);

// The one tensor of a list, dense.
at::Tensor& only(std::vector<at::Tensor>& tensors, const char* argument, const Where& where);

// Throws unless every tensor is contiguous, and of the dtype and device of like.
void checkAlike(const std::vector<at::Tensor>& tensors, const at::Tensor& like, const char* argument,
                const Where& where);

// Throws unless there is one tensor for each rank.
void checkLength(size_t length, int size, const char* argument, const Where& where);

// Throws unless rank is one of the group's.
void checkRank(int64_t rank, int size, const char* argument, const Where& where);

// Returns whether all tensors have the same number of elements.
bool even(const std::vector<at::Tensor>& tensors);

// Several tensors as one piece of memory: theirs, if they lie one behind the other and apart from the call's others, or
// a staging copy.
class Flat {
 public:
  // inPlace: the tensor that one of others may be.
  explicit Flat(const std::vector<at::Tensor>& tensors, at::TensorList others = {}, size_t inPlace = SIZE_MAX);

  void gather();   // copies the tensors into the staging memory, if there is one
  void scatter();  // copies the staging memory back
  void* data() const { return data_; }

  // Returns the number of Shunt's elements in each tensor, times size.
  std::vector<int64_t> counts(int64_t size) const;

 private:
  std::vector<at::Tensor> tensors_;
  at::Tensor staging_;
  void* data_;
};

}  // namespace shunt_torch
