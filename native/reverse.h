// The reverse pass of one plan: derivatives by values from the last to the first, and by the parameters on the way.
#ifndef TILTWALK_REVERSE_H_
#define TILTWALK_REVERSE_H_

#include "functions.h"
#include "outer.h"

namespace tiltwalk {
namespace TILTWALK_TARGET {
namespace {

// What an activation makes of the derivative by its output; `y` is the output, but for gelu, where it is the input.
TILTWALK_INLINE Vec through(Act act, Vec slope, Vec y) {
  const Vec one = broadcast(1), zero = broadcast(0);
  switch (act) {
    case kIdentity: return slope;
    case kRelu: return select(y > zero, slope, zero);
    case kTanh: return slope * (one - y * y);
    case kSigmoid: return slope * y * (one - y);
    case kGelu: {
      const Vec a = broadcast(0.797884561f), b = broadcast(0.044715f), square = y * y;
      const Vec t = tangent(a * (y + b * y * square));
      const Vec inner = a * (one + broadcast(3) * b * square);
      return slope * broadcast(0.5f) * (one + t + y * (one - t * t) * inner);
    }
  }
  return slope;
}

// Slopes of a value through its activation, from their own shape into a frame (or back into themselves).
template <Act kAct>
void activate_back_as(const Value& v, const float* values, const float* slopes, const Frame& frame, float* to) {
  for (int c = 0; c < v.channels; c++)
    for (int i = 0; i < v.height; i++) {
      const float* y = values + c * v.plane() + v.place(i, 0);
      const float* s = slopes + ((int64_t)c * v.height + i) * v.width * kBlock;
      float* row = to + c * frame.plane() + frame.place(i, 0);
      const int64_t step = (int64_t)frame.spread * kBlock;
      for (int j = 0; j < v.width; j++)
        for (int n = 0; n < kBlock; n += kLanes)
          store(row + j * step + n, through(kAct, load(s + j * kBlock + n), load(y + j * kBlock + n)));
    }
}

void activate_back(Act act, const Value& v, const float* values, const float* slopes, const Frame& frame, float* to) {
  switch (act) {
    case kIdentity: return activate_back_as<kIdentity>(v, values, slopes, frame, to);
    case kRelu: return activate_back_as<kRelu>(v, values, slopes, frame, to);
    case kTanh: return activate_back_as<kTanh>(v, values, slopes, frame, to);
    case kSigmoid: return activate_back_as<kSigmoid>(v, values, slopes, frame, to);
    case kGelu: return activate_back_as<kGelu>(v, values, slopes, frame, to);
  }
}

// The same through a pooling that was fused with its convolution, onto the places under each window.
template <Act kAct>
void unpool_as(const Value& v, const float* values, const int32_t* mask, Pooling pool, bool masked, const float* slopes, const Frame& frame, float* to) {
  const Vec zero = broadcast(0);
  const int64_t step = (int64_t)frame.spread * kBlock, row = frame.columns * step;
  for (int c = 0; c < v.channels; c++)
    for (int i = 0; i < v.height; i++)
      for (int j = 0; j < v.width; j++) {
        const int64_t at = (((int64_t)c * v.height + i) * v.width + j) * kBlock;
        float* place = to + c * frame.plane() + frame.place(2 * i, 2 * j);
        for (int n = 0; n < kBlock; n += kLanes) {
          const Vec s = through(kAct, load(slopes + at + n), load(values + c * v.plane() + v.place(i, j) + n));
          Int bit;
          memcpy(&bit, mask + at + n, sizeof bit);
          if (pool == kMean && !masked) bit = whole(15);
          const Int count = (bit & whole(1)) + ((bit >> 1) & whole(1)) + ((bit >> 2) & whole(1)) + ((bit >> 3) & whole(1));
          const Vec share = s / (pool == kMean ? broadcast(4) : number(count));
          for (int p = 0; p < 4; p++)
            store(place + (p >> 1) * row + (p & 1) * step + n, select(whole(0) - ((bit >> p) & whole(1)), share, zero));
        }
      }
}

void unpool(const Step& step, const Value& v, const float* values, const int32_t* mask, const float* slopes, float* to) {
  switch (step.act) {
    case kRelu: return unpool_as<kRelu>(v, values, mask, step.pool, step.relu_before, slopes, step.frame, to);
    case kTanh: return unpool_as<kTanh>(v, values, mask, step.pool, step.relu_before, slopes, step.frame, to);
    case kSigmoid: return unpool_as<kSigmoid>(v, values, mask, step.pool, step.relu_before, slopes, step.frame, to);
    default: return unpool_as<kIdentity>(v, values, mask, step.pool, step.relu_before, slopes, step.frame, to);
  }
}

Frame plain_frame(const Value& v) {
  Frame frame;
  frame.rows = v.height, frame.columns = v.width;
  return frame;
}

// The largest of a window gets the slope; equals share it, as in JAX.
void pool_back(const Step& step, const Value& in, const float* x, const Value& out, const float* y, const float* slopes, float* to) {
  const Vec one = broadcast(1), zero = broadcast(0), scale = broadcast(1.0f / (step.size * step.size));
  const int64_t row = (int64_t)in.width * kBlock, used = (int64_t)out.width * step.size;
  if (out.height * step.size < in.height || used < in.width)
    memset(to, 0, (size_t)(in.places() * kBlock) * sizeof(float));  // rows and columns that fill no window
  for (int c = 0; c < out.channels; c++)
    for (int i = 0; i < out.height; i++)
      for (int j = 0; j < out.width; j++) {
        const float* from = x + c * in.plane() + in.place(i * step.size, j * step.size);
        const float* top = y + c * out.plane() + out.place(i, j);
        const float* s = slopes + (((int64_t)c * out.height + i) * out.width + j) * kBlock;
        float* back = to + ((int64_t)c * in.height + i * step.size) * row + (int64_t)j * step.size * kBlock;
        for (int n = 0; n < kBlock; n += kLanes) {
          Vec share = load(s + n);
          if (step.pool == kMean) {
            share = share * scale;
          } else {
            Vec equals = zero;
            for (int a = 0; a < step.size; a++)
              for (int b = 0; b < step.size; b++)
                equals += select(load(from + ((int64_t)a * in.columns + b) * kBlock + n) == load(top + n), one, zero);
            share = share / equals;
          }
          for (int a = 0; a < step.size; a++)
            for (int b = 0; b < step.size; b++) {
              const Vec here = load(from + ((int64_t)a * in.columns + b) * kBlock + n);
              const Vec mine = step.pool == kMean ? share : select(here == load(top + n), share, zero);
              store(back + a * row + b * kBlock + n, mine);
            }
        }
      }
}

// Derivatives by the inputs of an affine step, from a frame or from vectors.
void affine_back(const Step& step, const float* packed, const float* from, int64_t from_stride, float* to, int64_t to_stride, int64_t plane,
                 int blocks) {
  const Back& back = step.back;
  int32_t places[64], targets[64];
  Tiles t;
  t.taps = back.taps, t.tap = back.tap, t.pool = kNoPool, t.relu_before = t.relu_after = false, t.plane = plane;
  t.range = back.range, t.row = back.row, t.column = back.column;
  int passes = kVectors;
  if (step.flat) {
    const int n = blocks * kVectors;
    t.tiles = (n + back.tile - 1) / back.tile;
    for (int k = 0; k < t.tiles * back.tile; k++) {
      const int u = k < n ? k : n - 1;
      places[k] = (int32_t)(u / kVectors * from_stride + u % kVectors * kLanes);
      targets[k] = (int32_t)(u / kVectors * to_stride + u % kVectors * kLanes);
    }
    t.position = places, t.target = targets;
    passes = 1;
  } else {
    t.tiles = back.tiles, t.position = back.position, t.target = back.target;
  }
  for (int v = 0; v < passes; v++) {
    const float* panel = packed + back.packed;
    int64_t channel = 0;
    for (int g = 0; g < back.groups; g++) {
      const int n = step.channels / back.groups + (g < step.channels % back.groups);
      t.in = from + v * kLanes, t.out = to + channel * plane + v * kLanes, t.panel = panel;
      run_tiles(back.tile, n, step.flat ? kDenseTaps : kRanged, t);
      panel += (int64_t)n * (back.taps + 1), channel += n;
    }
  }
}

void conv_sums(const Step& step, const float* from, const float* frame, float* sums) {
  Outer t;
  t.in = from, t.tap = step.tap, t.taps = step.taps, t.source = step.source, t.at = step.slope;
  t.places = step.places, t.plane = step.frame.plane(), t.width = step.width;
  int filter = 0;
  for (int g = 0; g < step.outer_groups; g++) {
    const int n = step.filters / step.outer_groups + (g < step.filters % step.outer_groups);
    t.slope = frame + filter * t.plane, t.sums = sums + step.sums + filter;
    run_outer(step.outer_tile, n, t);
    filter += n;
  }
  for (int f = 0; f < step.filters; f++) {
    Vec sum = broadcast(0);
    const float* slope = frame + f * t.plane;
    for (int n = 0; n < step.places; n++)
      for (int v = 0; v < kBlock; v += kLanes) sum += load(slope + step.slope[n] + v);
    sums[step.bias_sums + f] += total(sum);
  }
}

void dense_sums(const Step& step, const float* from, int64_t stride, const float* slopes, int64_t slope_stride, int blocks, float* turned,
                float* sums) {
  for (int b = 0; b < blocks; b++)
    for (int n = 0; n < kBlock; n++) {
      float* to = turned + ((int64_t)b * kBlock + n) * step.width;
      const float* s = slopes + b * slope_stride + n;
      for (int o = 0; o < step.filters; o++) to[o] = s[(int64_t)o * kBlock];
      for (int64_t o = step.filters; o < step.width; o++) to[o] = 0;
    }
  run_products({from, turned, sums + step.sums, stride, step.width, step.taps, blocks});
  for (int o = 0; o < step.filters; o++) {
    Vec sum = broadcast(0);
    for (int b = 0; b < blocks; b++)
      for (int v = 0; v < kBlock; v += kLanes) sum += load(slopes + b * slope_stride + (int64_t)o * kBlock + v);
    sums[step.bias_sums + o] += total(sum);
  }
}

void apply_back(const Plan& plan, const Step& step, const float* packed, const float* data, float* memory, float* sums, int block, int blocks) {
  const Value &in = plan.value[step.in], &out = plan.value[step.out];
  const Slope &to = plan.slope[step.in], &from = plan.slope[step.out];
  if (!from.wanted) return;
  const float* x = (step.in ? memory + in.offset : data) + block * in.stride;
  const float* y = memory + out.offset + block * out.stride;
  float* slopes = memory + from.offset + block * from.stride;
  float* back = memory + to.offset + block * to.stride;
  for (int b = 0; b < blocks; b++) {
    const float *xb = x + b * in.stride, *yb = y + b * out.stride;
    float *sb = slopes + b * from.stride, *tb = back + b * to.stride;
    if (step.what == kPool) {
      pool_back(step, in, xb, out, yb, sb, tb);
    } else if (step.what == kElementwise) {
      const Value& v = step.act == kGelu ? in : out;
      activate_back(step.act, v, step.act == kGelu ? xb : yb, sb, plain_frame(v), tb);
    } else if (step.flat) {
      if (step.act != kIdentity) activate_back(step.act, out, yb, sb, plain_frame(out), sb);
    } else {
      float* frame = memory + plan.frame;
      if (step.frame.plane() != (int64_t)step.places * kBlock) memset(frame, 0, (size_t)(out.channels * step.frame.plane()) * sizeof(float));
      if (step.pool)
        unpool(step, out, yb, (const int32_t*)(memory + step.mask + (block + b) * step.mask_stride), sb, frame);
      else
        activate_back(step.act, out, yb, sb, step.frame, frame);
      conv_sums(step, xb, frame, sums);
      if (to.wanted) affine_back(step, packed, frame, 0, tb, 0, (int64_t)in.height * in.width * kBlock, 1);
    }
  }
  if (step.what == kAffine && step.flat) {
    dense_sums(step, x, in.stride, slopes, from.stride, blocks, memory + plan.turned, sums);
    if (to.wanted) affine_back(step, packed, slopes, from.stride, back, to.stride, kBlock, blocks);
  }
}

void reverse(const Plan& plan, const float* packed, const float* data, int blocks, const float* slopes, float* memory, float* sums) {
  if (!plan.last) return;
  const int64_t size = plan.outputs * kBlock;
  const Slope& end = plan.slope[plan.last];
  memcpy(memory + end.offset, slopes, blocks * size * sizeof(float));
  for (int k = plan.count - 1; k >= plan.first_flat; k--) apply_back(plan, plan.step[k], packed, data, memory, sums, 0, blocks);
  for (int b = blocks - 1; b >= 0; b--)
    for (int k = plan.first_flat - 1; k >= 0; k--) apply_back(plan, plan.step[k], packed, data, memory, sums, b, 1);
}

// Each group of inputs: zeros where the biases would be, then its weights output by output.
void pack_back(const Plan& plan, const float* theta, float* packed) {
  for (int k = 0; k < plan.count; k++) {
    const Step& step = plan.step[k];
    const Back& back = step.back;
    if (step.what != kAffine || !plan.slope[step.in].wanted) continue;
    float* to = packed + back.packed;
    int64_t channel = 0;
    for (int g = 0; g < back.groups; g++) {
      const int n = step.channels / back.groups + (g < step.channels % back.groups);
      for (int i = 0; i < n; i++) *to++ = 0;
      for (int t = 0; t < back.taps; t++) {
        const float* from = theta + step.weight + (step.flat ? t : back.weight[t]) + channel * step.filters;
        for (int i = 0; i < n; i++) *to++ = from[i * (int64_t)step.filters];
      }
      channel += n;
    }
  }
}

// Softmax less one at the label, or the difference from the target, times the weight; nothing for samples that are not used.
void head_slopes(int kind, const float* out, int64_t outputs, const int32_t* labels, const float* targets, const float* weights,
                 const int32_t* used, float* slopes) {
  const Vec zero = broadcast(0);
  for (int v = 0; v < kBlock; v += kLanes) {
    Int take = whole(0);
    memcpy(&take, used + v, sizeof take);
    const Vec weight = load(weights + v);
    if (kind == kSquaredError) {
      for (int64_t c = 0; c < outputs; c++) {
        const Vec e = load(out + c * kBlock + v) - load(targets + c * kBlock + v);
        store(slopes + c * kBlock + v, select(take, e * weight, zero));
      }
      continue;
    }
    Vec top = load(out + v), total = zero;
    for (int64_t c = 1; c < outputs; c++) top = larger(load(out + c * kBlock + v), top);
    for (int64_t c = 0; c < outputs; c++) {
      const Vec e = exponential(load(out + c * kBlock + v) - top);
      total += e;
      store(slopes + c * kBlock + v, e);
    }
    for (int64_t c = 0; c < outputs; c++) {
      float own[kLanes];
      for (int n = 0; n < kLanes; n++) own[n] = labels[v + n] == c ? 1.0f : 0.0f;
      const Vec s = (load(slopes + c * kBlock + v) / total - load(own)) * weight;
      store(slopes + c * kBlock + v, select(take, s, zero));
    }
  }
}

}  // namespace
}  // namespace TILTWALK_TARGET
}  // namespace tiltwalk

#endif  // TILTWALK_REVERSE_H_
