// Many models on one data set: how the work is cut up, shared out and summed. Knows nothing of XLA.
#ifndef TILTWALK_RUN_H_
#define TILTWALK_RUN_H_

#include <functional>
#include <memory>

#include "kernel.h"

namespace tiltwalk {

// What is asked for. Blocks of data are [blocks][features][16], labels [blocks][16], targets [blocks][outputs][16], weights
// [blocks][16]. Which samples: a range a model (start, count), or a list of numbers a model, or one for all models.
struct Request {
  const Plan* plan = nullptr;
  const Kernel* kernel = nullptr;
  int kind = kCrossEntropy;
  int64_t models = 0, samples = 0;
  const float *thetas = nullptr, *data = nullptr, *targets = nullptr, *weights = nullptr;
  const int32_t *labels = nullptr, *ranges = nullptr, *index = nullptr;
  int64_t range_rows = 0, index_rows = 0, index_size = 0;
  float* losses = nullptr;      // [models]: sum of weight times loss, over the number of samples
  float* per_sample = nullptr;  // [models][listed], with `outputs` floats a sample for kOutputs
  float* gradient = nullptr;    // [models][parameters], of the mean; the plan must keep its values
  int64_t listed = 0;           // samples a model in `per_sample`
};

// Runs `work` on up to `others` more threads than this one; it may be called by fewer, and by any of them late.
using Share = std::function<void(int64_t others, const std::shared_ptr<std::function<void()>>& work)>;

void run(const Request& request, int64_t threads, const Share& share);

// The kernel that this machine runs best, or the one that is asked for by name; null where it cannot run here.
const Kernel* kernel_for(const char* name);

}  // namespace tiltwalk

#endif  // TILTWALK_RUN_H_
