// values.h: dtypes, data and reductions, as the reference has them.
#pragma once

#include <vector>

namespace values {

constexpr int kTypes = 12;
extern const char *const kNames[kTypes];
extern const int kBytes[kTypes];
extern const char *const kOps[6];

// A rank's data: random bits, but floats of moderate size and now and then a NaN.
void generate(int type, int rank, long count, unsigned seed, char *p);
// One element of every rank, in rank order, with op.
void reduce(int type, int op, const std::vector<const char *> &in, const double *factor, char *out);
// Whether two elements are equal; any NaN is NaN.
bool same(int type, const char *a, const char *b);

}  // namespace values
