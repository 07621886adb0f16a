// The door between the code that is compiled once and the code that is compiled once per target.
#ifndef TILTWALK_KERNEL_H_
#define TILTWALK_KERNEL_H_

#include "plan.h"

namespace tiltwalk {

struct Kernel {
  const char* name;
  Blocking blocking;
  // Weights of one model in the order in which the tiles read them.
  void (*pack)(const Plan& plan, const float* theta, float* packed);
  // Outputs of `blocks` <= plan.pass blocks that lie one after another; returned as [blocks][outputs][16].
  const float* (*forward)(const Plan& plan, const float* packed, const float* data, int blocks, float* memory);
  // Loss of the 16 samples of a block. Labels for cross entropy and zero-one, targets [outputs][16] for squared error.
  void (*head)(int kind, const float* out, int64_t outputs, const int32_t* labels, const float* targets, float* losses);
  // Derivatives of those losses by the outputs, each sample's times its weight; 0 for a sample whose weight is not `used`.
  void (*head_slopes)(int kind, const float* out, int64_t outputs, const int32_t* labels, const float* targets,
                      const float* weights, const int32_t* used, float* slopes);
  // The weights again, turned round for the way back. For plans that keep their values, as is the next.
  void (*pack_back)(const Plan& plan, const float* theta, float* packed);
  // After `forward` on the same blocks: adds the derivatives by the parameters to `sums`. `slopes` [blocks][outputs][16].
  void (*reverse)(const Plan& plan, const float* packed, const float* data, int blocks, const float* slopes, float* memory, float* sums);
};

extern const Kernel kernel_plain;
#ifdef TILTWALK_HAS_AVX2
extern const Kernel kernel_avx2;
#endif
#ifdef TILTWALK_HAS_AVX512
extern const Kernel kernel_avx512;
#endif
#ifdef TILTWALK_HAS_NEON
extern const Kernel kernel_neon;
#endif

}  // namespace tiltwalk

#endif  // TILTWALK_KERNEL_H_
