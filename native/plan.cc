// Reads the flat integers that the Python door sends and lays out memory and tiles. See plan.h.
//
// The code: version 1; number of axes; channels, height, width; number of layers; then six integers a layer:
// operation, and for Conv kernel, in, out, stride, same; for a pool its size; for Dense in, out; for an activation its number.
#include "plan.h"

#include <algorithm>

namespace tiltwalk {
namespace {

constexpr int kHeader = 6, kFields = 6;
constexpr int64_t kLargest = int64_t(1) << 26;  // floats in a value: keeps every offset within 32 bits

struct Pads {
  int out, low, high;
};

Pads pads(int size, int kernel, int stride, bool same) {
  if (!same) return {size < kernel ? 0 : (size - kernel) / stride + 1, 0, 0};
  const int out = (size + stride - 1) / stride, total = std::max((out - 1) * stride + kernel - size, 0);
  return {out, total / 2, total - total / 2};
}

// Cycles of one tap, a place and a filter, for a tile shape: multiply-adds, loads, or the latency of short tiles.
double cost(int tile, int filters, int largest, int* groups) {
  *groups = (filters + largest - 1) / largest;
  double cycles = 0;
  for (int g = 0; g < *groups; g++) {
    const int n = filters / *groups + (g < filters % *groups);
    cycles += std::max({tile * n / 2.0, (tile + n + 1) / 2.0, 4.0});
  }
  return cycles / tile;
}

// The cheapest tile for a number of filters; of equals the one with most places, of which a dense layer has few.
void choose(const Blocking& blocking, int filters, bool dense, int* tile, int* groups) {
  const int most = dense ? 2 * kBlock / blocking.lanes : 1 << 30;
  double best = 1e30;
  for (int k = 0; k < blocking.shapes; k++) {
    int n;
    const double c = cost(blocking.shape[k].tile, filters, blocking.shape[k].group, &n);
    const bool equal = c < best * 1.01 && blocking.shape[k].tile == 4 && !dense;
    if (blocking.shape[k].tile <= most && (c < best * 0.99 || equal)) best = c, *tile = blocking.shape[k].tile, *groups = n;
  }
}

// The same for taps times filters, where the last tile of taps may be part empty.
void choose_outer(const Blocking& blocking, Step* step) {
  double best = 1e30;
  for (const Blocking::Shape& shape : blocking.outer) {
    int n;
    const double c = cost(shape.tile, step->filters, shape.group, &n) * shape.tile * ((step->taps + shape.tile - 1) / shape.tile);
    if (c < best * 0.999) best = c, step->outer_tile = shape.tile, step->outer_groups = n;
  }
}

int64_t room(int64_t* end, int64_t floats) {
  const int64_t at = *end;
  *end += (floats + 15) / 16 * 16;
  return at;
}

Value image(int channels, int height, int width) {
  Value v;
  v.channels = channels, v.height = v.rows = height, v.width = v.columns = width;
  return v;
}

struct Builder {
  const int32_t* code;
  int layers;
  const Blocking& blocking;
  bool keep;
  Plan* plan;

  const int32_t* layer(int i) const { return code + kHeader + i * kFields; }
  bool activation(int i) const { return i < layers && layer(i)[0] == kActivation; }
  Value& last() { return plan->values.back(); }

  int add(const Value& v) {
    plan->values.push_back(v);
    return (int)plan->values.size() - 1;
  }

  void elementwise(Act act, const Value& to) {
    Step step;
    step.what = kElementwise, step.act = act, step.flat = plan->first_flat >= 0;
    step.in = (int)plan->values.size() - 1, step.out = add(to);
    plan->steps.push_back(step);
  }

  // Gives the last value the zeros around it that a convolution wants, by a copy where it is the data itself.
  void surround(Pads i, Pads j) {
    if (!(i.low || i.high || j.low || j.high)) return;
    Value v = last();
    v.top = i.low, v.left = j.low, v.rows = v.height + i.low + i.high, v.columns = v.width + j.low + j.high;
    if (plan->values.size() == 1)
      elementwise(kIdentity, v);
    else
      last() = v;
  }

  // Takes an activation, a 2 x 2 pooling and another activation into a step; returns the next layer.
  int fuse(Step* step, int next, int height, int width, bool conv) {
    Act first = activation(next) ? (Act)layer(next)[1] : kIdentity;
    if (keep && first == kGelu) return next;  // its derivative needs what goes in
    const int after = next + activation(next);
    const int op = after < layers ? layer(after)[0] : 0;
    const bool monotone = first != kGelu, cheap = first == kIdentity || first == kRelu;
    const bool pooled = conv && (op == kMaxPool || op == kAvgPool) && layer(after)[1] == 2 && height >= 2 && width >= 2 &&
                        (op == kMaxPool ? monotone : cheap);
    if (!pooled) {
      step->act = first;
      step->relu_after = first == kRelu;
      return after;
    }
    step->pool = op == kMaxPool ? kMaximum : kMean;
    if (op == kAvgPool) {  // a monotone activation may follow the maximum instead of preceding it
      step->relu_before = first == kRelu;
      first = kIdentity;
    }
    next = after + 1;
    if (first == kIdentity && activation(next) && !(keep && layer(next)[1] == kGelu)) first = (Act)layer(next)[1], next++;
    step->act = first;
    step->relu_after = first == kRelu;
    return next;
  }

  int affine(int i) {
    const int32_t* f = layer(i);
    const bool conv = f[0] == kConv;
    Step step;
    Pads pi{1, 0, 0}, pj{1, 0, 0};
    if (conv) {
      pi = pads(last().height, f[1], f[4], f[5]), pj = pads(last().width, f[1], f[4], f[5]);
      surround(pi, pj);
    }
    const Value in = last();
    step.in = (int)plan->values.size() - 1;
    step.filters = conv ? f[3] : f[2];
    step.taps = conv ? f[1] * f[1] * f[2] : f[1];
    step.kernel = conv ? f[1] : 0, step.channels = conv ? f[2] : f[1], step.stride = conv ? f[4] : 1;
    step.low_i = pi.low, step.low_j = pj.low;
    step.weight = plan->parameters, step.bias = step.weight + (int64_t)step.taps * step.filters;
    plan->parameters = step.bias + step.filters;
    plan->flops += 2.0 * step.taps * step.filters * pi.out * pj.out;
    const int next = fuse(&step, i + 1, pi.out, pj.out, conv);
    if (step.pool)
      step.tile = 4, step.groups = (step.filters + blocking.pool_group - 1) / blocking.pool_group;
    else
      choose(blocking, step.filters, !conv, &step.tile, &step.groups);
    step.packed = room(&plan->packed, (int64_t)step.filters * (step.taps + 1));
    if (!conv) {
      if (plan->first_flat < 0) plan->first_flat = (int)plan->steps.size();
      step.flat = true;
      step.out = add(image(step.filters, 1, 1));
    } else {
      step.out = add(step.pool ? image(step.filters, pi.out / 2, pj.out / 2) : image(step.filters, pi.out, pj.out));
      for (int c = 0; c < f[2]; c++)
        for (int y = 0; y < f[1]; y++)
          for (int x = 0; x < f[1]; x++) {
            step.taps_at.push_back((int32_t)(c * in.plane() + (y * in.columns + x) * kBlock));
            step.rows_at.push_back((y * f[1] + x) * f[2] + c);
          }
    }
    plan->steps.push_back(step);
    return next;
  }

  // Offsets that need the final shape of the values, which a later convolution may have padded.
  void places(Step* step) {
    const Value &in = plan->values[step->in], &out = plan->values[step->out];
    if (step->what != kAffine || step->flat) return;
    auto at = [&](int i, int j) { return (int32_t)((i * step->stride * in.columns + j * step->stride) * kBlock); };
    if (step->pool) {
      for (int i = 0; i < out.height; i++)
        for (int j = 0; j < out.width; j++) {
          for (int k = 0; k < 4; k++) step->positions_at.push_back(at(2 * i + k / 2, 2 * j + k % 2));
          step->targets_at.push_back((int32_t)out.place(i, j));
        }
      step->tiles = out.height * out.width;
      return;
    }
    const int n = out.height * out.width;
    step->tiles = (n + step->tile - 1) / step->tile;
    for (int k = 0; k < step->tiles * step->tile; k++) {  // the last tile does some places twice rather than fewer
      const int p = std::min(k, n - 1);
      step->positions_at.push_back(at(p / out.width, p % out.width));
      step->targets_at.push_back((int32_t)out.place(p / out.width, p % out.width));
    }
  }

  // Memory of derivatives: images take turns in two places, and the frames all use one.
  void reverse_memory(int boundary, int64_t* end) {
    std::vector<Slope>& slopes = plan->slopes;
    slopes.resize(plan->values.size());
    int64_t turn[2] = {0, 0}, largest = 0, widest = 0;
    for (Step& step : plan->steps) {
      const Value &in = plan->values[step.in], &out = plan->values[step.out];
      Slope& s = slopes[step.out];
      s.wanted = step.what == kAffine || slopes[step.in].wanted;
      if (step.out < boundary) turn[step.out % 2] = std::max(turn[step.out % 2], out.places() * kBlock);
      if (step.flat && step.what == kAffine) widest = std::max<int64_t>(widest, (step.filters + kBlock - 1) / kBlock * kBlock);
      if (step.what != kAffine || step.flat) continue;
      if (step.pool) step.mask_stride = out.places() * kBlock, step.mask = room(end, plan->pass * step.mask_stride);
      const int height = out.height * (step.pool ? 2 : 1), width = out.width * (step.pool ? 2 : 1);
      Frame& f = step.frame;
      f.rows = height, f.columns = width;
      if (slopes[step.in].wanted) {
        f.spread = step.stride, f.top = step.kernel - 1 - step.low_i, f.left = step.kernel - 1 - step.low_j;
        f.rows = f.top + std::max((height - 1) * step.stride + 1, in.height + step.low_i);
        f.columns = f.left + std::max((width - 1) * step.stride + 1, in.width + step.low_j);
      }
      largest = std::max(largest, out.channels * f.plane());
    }
    const int64_t turns[2] = {room(end, turn[0]), room(end, turn[1])};
    plan->frame = room(end, largest), plan->turned = room(end, plan->pass * kBlock * widest);
    for (int k = 1; k < (int)slopes.size(); k++) {
      const int64_t floats = plan->values[k].places() * kBlock;
      slopes[k].stride = k < boundary ? 0 : floats;
      slopes[k].offset = k < boundary ? turns[k % 2] : room(end, plan->pass * floats);
    }
  }

  void reverse_tables(Step* step) {
    if (step->what != kAffine) return;
    const Value &in = plan->values[step->in], &out = plan->values[step->out];
    const Frame& s = step->frame;
    step->width = step->flat ? (step->filters + kBlock - 1) / kBlock * kBlock : step->filters;
    step->sums = room(&plan->sums, step->width * step->taps), step->bias_sums = room(&plan->sums, step->width);
    choose_outer(blocking, step);
    const int height = out.height * (step->pool ? 2 : 1), width = out.width * (step->pool ? 2 : 1);
    step->places = height * width;
    if (!step->flat)
      for (int i = 0; i < height; i++)
        for (int j = 0; j < width; j++) {
          step->sources_at.push_back((int32_t)(((int64_t)i * step->stride * in.columns + (int64_t)j * step->stride) * kBlock));
          step->slopes_at.push_back((int32_t)s.place(i, j));
        }
    if (!plan->slopes[step->in].wanted) return;
    Back& b = step->back;
    const int k = step->kernel, f = step->filters;
    choose(blocking, step->channels, step->flat, &b.tile, &b.groups);
    b.taps = step->flat ? f : k * k * f;
    b.packed = room(&plan->packed, (int64_t)step->channels * (b.taps + 1));
    if (step->flat) return;
    b.row = k * f, b.column = f;
    for (int y = 0; y < k; y++)
      for (int x = 0; x < k; x++)
        for (int n = 0; n < f; n++) {
          b.taps_at.push_back((int32_t)(n * s.plane() + ((int64_t)y * s.columns + x) * kBlock));
          b.weights_at.push_back(((k - 1 - y) * k + k - 1 - x) * step->channels * f + n);
        }
    const int n = in.height * in.width;
    b.tiles = (n + b.tile - 1) / b.tile;
    const int last_i = s.top + (height - 1) * step->stride, last_j = s.left + (width - 1) * step->stride;
    for (int t = 0; t < b.tiles; t++) {
      int range[4] = {k, 0, k, 0};
      for (int p = t * b.tile; p < (t + 1) * b.tile; p++) {
        const int i = std::min(p, n - 1) / in.width, j = std::min(p, n - 1) % in.width;
        b.positions_at.push_back((int32_t)(((int64_t)i * s.columns + j) * kBlock));
        b.targets_at.push_back((int32_t)(((int64_t)i * in.width + j) * kBlock));
        range[0] = std::min(range[0], std::max(s.top - i, 0)), range[1] = std::max(range[1], std::min(last_i - i + 1, k));
        range[2] = std::min(range[2], std::max(s.left - j, 0)), range[3] = std::max(range[3], std::min(last_j - j + 1, k));
      }
      b.ranges_at.insert(b.ranges_at.end(), range, range + 4);
    }
  }

  void memory() {
    std::vector<Value>& v = plan->values;
    int64_t end = 0;
    auto take = [&](int64_t floats) { return room(&end, floats); };
    const int first = plan->first_flat;
    const int boundary = first < (int)plan->steps.size() ? plan->steps[first].in : (int)v.size() - 1;
    int64_t image_floats[2] = {0, 0}, flat_floats[2] = {0, 0}, all = 0;
    for (int k = 1; k < (int)v.size(); k++) {
      all += v[k].floats();
      if (k < boundary) image_floats[k % 2] = std::max(image_floats[k % 2], v[k].floats());
      if (k > boundary) flat_floats[k % 2] = std::max(flat_floats[k % 2], v[k].floats());
    }
    if (keep) {  // as many blocks as the second-level cache holds
      double dense = 0;
      for (const Step& step : plan->steps) {
        if (step.pool) all += v[step.out].places() * kBlock;
        if (step.flat && step.what == kAffine) dense += 2.0 * step.taps * step.filters;
      }
      const int least = dense > 0.1 * plan->flops ? 2 : 1;  // a dense layer's tiles want two blocks
      plan->pass = 8;
      while (plan->pass > least && plan->pass * all > 96 * 1024) plan->pass /= 2;
      for (int k = 1; k < (int)v.size(); k++) v[k].stride = v[k].floats(), v[k].offset = take(plan->pass * v[k].floats());
      reverse_memory(boundary, &end);
    } else {
      const int64_t images[2] = {take(image_floats[0]), take(image_floats[1])};
      const int64_t edge = boundary ? take(plan->pass * v[boundary].floats()) : 0;
      const int64_t flats[2] = {take(plan->pass * flat_floats[0]), take(plan->pass * flat_floats[1])};
      for (int k = 1; k < (int)v.size(); k++) {
        v[k].stride = k < boundary ? 0 : v[k].floats();
        v[k].offset = k < boundary ? images[k % 2] : k == boundary ? edge : flats[k % 2];
      }
    }
    v[0].stride = v[0].floats();
    plan->memory = end;
  }
};

bool known(const int32_t* f) {
  switch (f[0]) {
    case kConv: return f[1] > 0 && f[2] > 0 && f[3] > 0 && f[4] > 0 && (f[5] == 0 || f[5] == 1);
    case kMaxPool:
    case kAvgPool: return f[1] > 0;
    case kDense: return f[1] > 0 && f[2] > 0;
    case kFlatten: return true;
    case kActivation: return f[1] >= kIdentity && f[1] <= kGelu;
    default: return false;
  }
}

// Follows the shapes alone, before anything is allocated. Returns what is wrong, if anything.
std::string check(const int32_t* code, int layers) {
  int64_t c = code[2], h = code[3], w = code[4];
  bool flat = code[1] == 1;
  for (int i = 0; i < layers; i++) {
    const int32_t* f = code + kHeader + i * kFields;
    const std::string where = "layer " + std::to_string(i);
    if (!known(f)) return where + " is not a layer that the kernel knows";
    if (f[0] == kConv) {
      if (f[1] > 4096 || f[4] > 4096) return where + " has too large a kernel";
      if (flat || c != f[2]) return where + " is a convolution that cannot follow its input";
      const Pads pi = pads((int)h, f[1], f[4], f[5]), pj = pads((int)w, f[1], f[4], f[5]);
      if (pi.out < 1 || pj.out < 1) return where + " has a kernel larger than its image";
      if (c * (h + pi.low + pi.high) * (w + pj.low + pj.high) * kBlock > kLargest) return where + " is too large";
      if ((int64_t)f[1] * f[1] * c * f[3] > kLargest) return where + " has too many weights";
      c = f[3], h = pi.out, w = pj.out;
    } else if (f[0] == kMaxPool || f[0] == kAvgPool) {
      if (flat || h < f[1] || w < f[1]) return where + " is a pooling that cannot follow its input";
      h /= f[1], w /= f[1];
    } else if (f[0] == kDense) {
      if (!flat || c != f[1]) return where + " is a dense layer that cannot follow its input";
      if (c * f[2] > kLargest) return where + " has too many weights";
      c = f[2];
    } else if (f[0] == kFlatten) {
      c = c * h * w, h = w = 1, flat = true;
    }
    if (c * h * w * kBlock * 2 > kLargest) return where + " is too large";
  }
  return "";
}

}  // namespace

std::string build(const int32_t* code, int64_t size, const Blocking& blocking, bool keep, Plan* plan) {
  if (size < kHeader || code[0] != 1 || (code[1] != 1 && code[1] != 3)) return "the program's header is not one that the kernel knows";
  const int layers = code[5];
  if (layers < 0 || layers > 4096 || size != kHeader + (int64_t)layers * kFields) return "the program's length is wrong";
  if (code[2] < 1 || code[3] < 1 || code[4] < 1 || (code[1] == 1 && code[3] * (int64_t)code[4] != 1)) return "the input's shape is wrong";
  if (code[2] > kLargest || code[3] > kLargest || code[4] > kLargest || (int64_t)code[2] * code[3] > kLargest ||
      (int64_t)code[2] * code[3] * code[4] * kBlock > kLargest)
    return "the input is too large";
  const std::string wrong = check(code, layers);
  if (!wrong.empty()) return wrong;

  plan->first_flat = -1;
  plan->values.push_back(image(code[2], code[3], code[4]));
  plan->features = (int64_t)code[2] * code[3] * code[4];
  Builder b{code, layers, blocking, keep, plan};
  for (int i = 0; i < layers;) {
    const int32_t* f = b.layer(i);
    switch (f[0]) {
      case kConv:
      case kDense: i = b.affine(i); continue;
      case kActivation:
        if (f[1] != kIdentity) b.elementwise((Act)f[1], b.last());
        break;
      case kFlatten: break;  // the same memory in the same order
      default: {
        Step step;
        step.what = kPool, step.pool = f[0] == kMaxPool ? kMaximum : kMean, step.size = f[1];
        step.in = (int)plan->values.size() - 1;
        const Value v = b.last();
        step.out = b.add(image(v.channels, v.height / f[1], v.width / f[1]));
        plan->steps.push_back(step);
      }
    }
    i++;
  }
  if (plan->first_flat < 0) plan->first_flat = (int)plan->steps.size();
  plan->outputs = (int64_t)b.last().channels * b.last().height * b.last().width;
  b.memory();
  for (Step& step : plan->steps) {
    b.places(&step);
    step.tap = step.taps_at.data(), step.row = step.rows_at.data();
    step.position = step.positions_at.data(), step.target = step.targets_at.data();
    if (!keep) continue;
    b.reverse_tables(&step);
    Back& back = step.back;
    back.tap = back.taps_at.data(), back.weight = back.weights_at.data(), back.range = back.ranges_at.data();
    back.position = back.positions_at.data(), back.target = back.targets_at.data();
    step.source = step.sources_at.data(), step.slope = step.slopes_at.data();
  }
  plan->slope = plan->slopes.data();
  plan->value = plan->values.data(), plan->step = plan->steps.data();
  plan->count = (int)plan->steps.size(), plan->last = (int)plan->values.size() - 1;
  return "";
}

}  // namespace tiltwalk
