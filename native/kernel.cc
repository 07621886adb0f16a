// The forward pass and the losses, and the table of all that is once per target (TILTWALK_TARGET names it).
// See plan.h for the layout.
#include "kernel.h"

#include "functions.h"
#include "reverse.h"
#include "tiles.h"

namespace tiltwalk {
namespace TILTWALK_TARGET {
namespace {

template <Vec (*kFunction)(Vec)>
void map(const Value& in, const float* from, const Value& out, float* to) {
  for (int c = 0; c < out.channels; c++)
    for (int i = 0; i < out.height; i++) {
      const float* x = from + c * in.plane() + in.place(i, 0);
      float* y = to + c * out.plane() + out.place(i, 0);
      for (int64_t k = 0; k < (int64_t)out.width * kBlock; k += kLanes) store(y + k, kFunction(load(x + k)));
    }
}

Vec as_is(Vec x) { return x; }
Vec relu_(Vec x) { return relu(x); }
Vec tanh_(Vec x) { return tangent(x); }
Vec sigmoid_(Vec x) { return sigmoid(x); }
Vec gelu_(Vec x) { return gelu(x); }

void activate(Act act, const Value& in, const float* from, const Value& out, float* to) {
  switch (act) {
    case kIdentity: return map<as_is>(in, from, out, to);
    case kRelu: return map<relu_>(in, from, out, to);
    case kTanh: return map<tanh_>(in, from, out, to);
    case kSigmoid: return map<sigmoid_>(in, from, out, to);
    case kGelu: return map<gelu_>(in, from, out, to);
  }
}

void surround(const Value& v, float* to) {  // zeros around an image
  const int64_t row = (int64_t)v.columns * kBlock;
  for (int c = 0; c < v.channels; c++)
    for (int i = 0; i < v.rows; i++) {
      float* y = to + c * v.plane() + i * row;
      const bool inside = i >= v.top && i < v.top + v.height;
      const int64_t left = inside ? (int64_t)v.left * kBlock : row, right = inside ? (int64_t)(v.left + v.width) * kBlock : row;
      memset(y, 0, left * sizeof(float));
      memset(y + right, 0, (row - right) * sizeof(float));
    }
}

void pool(const Step& step, const Value& in, const float* from, const Value& out, float* to) {
  const Vec scale = broadcast(1.0f / (step.size * step.size));
  for (int c = 0; c < out.channels; c++)
    for (int i = 0; i < out.height; i++)
      for (int j = 0; j < out.width; j++)
        for (int v = 0; v < kBlock; v += kLanes) {
          const float* x = from + c * in.plane() + in.place(i * step.size, j * step.size) + v;
          Vec a = load(x);
          for (int y = 0; y < step.size; y++)
            for (int k = y == 0; k < step.size; k++) {
              const Vec b = load(x + ((int64_t)y * in.columns + k) * kBlock);
              a = step.pool == kMaximum ? larger(b, a) : a + b;
            }
          store(to + c * out.plane() + out.place(i, j) + v, step.pool == kMaximum ? a : a * scale);
        }
}

void affine(const Step& step, const Value& in, const float* from, const Value& out, float* to, int32_t* mask, const float* packed,
            int blocks) {
  int32_t places[64], targets[64];
  Tiles t;
  t.taps = step.taps, t.tap = step.tap, t.pool = step.pool, t.relu_before = step.relu_before, t.relu_after = step.relu_after;
  t.plane = out.plane(), t.mask_plane = (int64_t)out.height * out.width * kBlock, t.range = nullptr;
  int passes = kVectors;
  if (step.flat) {  // the places are the samples' vectors
    const int n = blocks * kVectors;
    t.tiles = (n + step.tile - 1) / step.tile;
    for (int k = 0; k < t.tiles * step.tile; k++) {
      const int u = k < n ? k : n - 1;
      places[k] = (int32_t)(u / kVectors * in.stride + u % kVectors * kLanes);
      targets[k] = (int32_t)(u / kVectors * out.stride + u % kVectors * kLanes);
    }
    t.position = places, t.target = targets;
    passes = 1;
  } else {
    t.tiles = step.tiles, t.position = step.position, t.target = step.target;
  }
  for (int v = 0; v < passes; v++) {
    const float* panel = packed + step.packed;
    int64_t filter = 0;
    for (int g = 0; g < step.groups; g++) {
      const int n = step.group_size(g);
      t.in = from + v * kLanes, t.out = to + filter * t.plane + v * kLanes, t.panel = panel;
      t.mask = mask ? mask + filter * t.mask_plane + v * kLanes : nullptr;
      run_tiles(step.tile, n, step.flat ? kDenseTaps : kListed, t);
      panel += (int64_t)n * (step.taps + 1), filter += n;
    }
  }
}

void apply(const Plan& plan, const Step& step, const float* packed, const float* data, float* memory, int block, int blocks) {
  const Value &in = plan.value[step.in], &out = plan.value[step.out];
  const float* from = (step.in ? memory + in.offset : data) + block * in.stride;
  float* to = memory + out.offset + block * out.stride;
  if (out.padded()) surround(out, to);
  switch (step.what) {
    case kPool: return pool(step, in, from, out, to);
    case kElementwise:
      for (int b = 0; b < blocks; b++) activate(step.act, in, from + b * in.stride, out, to + b * out.stride);
      return;
    case kAffine:
      affine(step, in, from, out, to, step.mask < 0 ? nullptr : (int32_t*)(memory + step.mask + block * step.mask_stride), packed, blocks);
      if (step.act > kRelu)
        for (int b = 0; b < blocks; b++) activate(step.act, out, to + b * out.stride, out, to + b * out.stride);
  }
}

const float* forward(const Plan& plan, const float* packed, const float* data, int blocks, float* memory) {
  for (int b = 0; b < blocks; b++)
    for (int k = 0; k < plan.first_flat; k++) apply(plan, plan.step[k], packed, data, memory, b, 1);
  for (int k = plan.first_flat; k < plan.count; k++) apply(plan, plan.step[k], packed, data, memory, 0, blocks);
  return plan.last ? memory + plan.value[plan.last].offset : data;
}

// Each group of filters: its biases, then its weights tap by tap.
void pack(const Plan& plan, const float* theta, float* packed) {
  for (int k = 0; k < plan.count; k++) {
    const Step& step = plan.step[k];
    if (step.what != kAffine) continue;
    float* to = packed + step.packed;
    int64_t filter = 0;
    for (int g = 0; g < step.groups; g++) {
      const int n = step.group_size(g);
      memcpy(to, theta + step.bias + filter, n * sizeof(float));
      to += n;
      for (int t = 0; t < step.taps; t++, to += n) {
        const float* from = theta + step.weight + (step.flat ? t : step.row[t]) * (int64_t)step.filters + filter;
        for (int f = 0; f < n; f++) to[f] = from[f];
      }
      filter += n;
    }
  }
}

// log sum exp(out - top) - (out[label] - top). A label that is no class has no such term, as on the plain path.
void cross_entropy(const float* out, int64_t outputs, const int32_t* labels, float* losses) {
  for (int v = 0; v < kBlock; v += kLanes) {
    Vec top = load(out + v), total = broadcast(0);
    for (int64_t c = 1; c < outputs; c++) top = larger(load(out + c * kBlock + v), top);
    for (int64_t c = 0; c < outputs; c++) total += exponential(load(out + c * kBlock + v) - top);
    float best[kLanes], own[kLanes];
    store(best, top);
    for (int n = 0; n < kLanes; n++) {
      const int32_t label = labels[v + n];
      own[n] = label >= 0 && label < outputs ? out[label * (int64_t)kBlock + v + n] - best[n] : 0;
    }
    store(losses + v, logarithm(total) - load(own));
  }
}

void squared_error(const float* out, int64_t outputs, const float* targets, float* losses) {
  for (int v = 0; v < kBlock; v += kLanes) {
    Vec sum = broadcast(0);
    for (int64_t c = 0; c < outputs; c++) {
      const Vec e = load(out + c * kBlock + v) - load(targets + c * kBlock + v);
      sum += e * e;
    }
    store(losses + v, sum * broadcast(0.5f));
  }
}

// 1 where the largest output, the first of equals, is not the label; NaN where an output is.
void zero_one(const float* out, int64_t outputs, const int32_t* labels, float* losses) {
  for (int n = 0; n < kBlock; n++) {
    int64_t best = 0;
    float sum = 0;
    for (int64_t c = 0; c < outputs; c++) {
      const float x = out[c * kBlock + n];
      if (x > out[best * kBlock + n]) best = c;
      if (x != x) sum = x;
    }
    losses[n] = sum != sum ? sum : best == labels[n] ? 0.0f : 1.0f;
  }
}

void head(int kind, const float* out, int64_t outputs, const int32_t* labels, const float* targets, float* losses) {
  switch (kind) {
    case kCrossEntropy: return cross_entropy(out, outputs, labels, losses);
    case kSquaredError: return squared_error(out, outputs, targets, losses);
    case kZeroOne: return zero_one(out, outputs, labels, losses);
  }
}

}  // namespace
}  // namespace TILTWALK_TARGET

#define TILTWALK_JOIN_(a, b) a##b
#define TILTWALK_JOIN(a, b) TILTWALK_JOIN_(a, b)
#define TILTWALK_TEXT_(a) #a
#define TILTWALK_TEXT(a) TILTWALK_TEXT_(a)

extern const Kernel TILTWALK_JOIN(kernel_, TILTWALK_TARGET) = {
    TILTWALK_TEXT(TILTWALK_TARGET), TILTWALK_TARGET::kBlocking, TILTWALK_TARGET::pack, TILTWALK_TARGET::forward, TILTWALK_TARGET::head,
    TILTWALK_TARGET::head_slopes, TILTWALK_TARGET::pack_back, TILTWALK_TARGET::reverse,
};

}  // namespace tiltwalk
