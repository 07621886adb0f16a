// Random and broken layer programs through every target that this machine runs, built with sanitizers: buffers have exactly
// the size that the calls promise, and the targets must agree with each other. fuzz [rounds] [seed]
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <thread>

#include "../../native/run.h"

using namespace tiltwalk;

static std::mt19937_64 source;
static int below(int n) { return (int)(source() % (uint64_t)n); }
static float normal() { return std::normal_distribution<float>()(source); }

template <class T>
static std::unique_ptr<T[]> exact(int64_t n, T value = T()) {
  std::unique_ptr<T[]> out(new T[n > 0 ? n : 1]);
  for (int64_t i = 0; i < n; i++) out[i] = value;
  return out;
}

static std::vector<int32_t> program() {
  const bool image = below(4) > 0;
  int c = 1 + below(image ? 4 : 40), h = image ? 1 + below(14) : 1, w = image ? 1 + below(14) : 1;
  std::vector<int32_t> code = {1, image ? 3 : 1, c, h, w, 0};
  bool flat = !image;
  int layers = 1 + below(7);
  for (int i = 0; i < layers; i++) {
    int32_t f[6] = {kActivation, below(5), 0, 0, 0, 0};
    const int pick = below(10);
    if (flat && pick < 6) {
      f[0] = kDense, f[1] = c, f[2] = c = 1 + below(40);
    } else if (!flat && pick < 4) {
      const int same = below(2), k = 1 + below(same ? 7 : std::min({h, w, 7})), s = 1 + below(3);
      f[0] = kConv, f[1] = k, f[2] = c, f[3] = c = 1 + below(20), f[4] = s, f[5] = same;
      h = same ? (h + s - 1) / s : (h - k) / s + 1, w = same ? (w + s - 1) / s : (w - k) / s + 1;
    } else if (!flat && pick < 7) {
      const int s = 1 + below(std::min({h, w, 3}));
      f[0] = pick < 6 ? kMaxPool : kAvgPool, f[1] = s, h /= s, w /= s;
    } else if (pick == 7) {
      f[0] = kFlatten, f[1] = 0, c *= h * w, h = w = 1, flat = true;
    }
    code.insert(code.end(), f, f + 6);
  }
  code[5] = layers;
  return code;
}

static void broken_programs() {
  for (int i = 0; i < 200; i++) {
    std::vector<int32_t> code = program();
    const int kind = below(4);
    if (kind == 0) code.resize(below((int)code.size()));
    if (kind == 1) code[below((int)code.size())] = below(2) ? below(100) - 50 : (int32_t)source();
    if (kind == 2)
      for (int32_t& x : code) x = (int32_t)source();
    if (kind == 3) code.push_back(below(9));
    std::unique_ptr<int32_t[]> tight(new int32_t[code.size() + 1]);
    memcpy(tight.get(), code.data(), code.size() * sizeof(int32_t));
    for (const bool keep : {false, true}) {
      Plan plan;
      build(tight.get(), (int64_t)code.size(), kernel_plain.blocking, keep, &plan);
    }
  }
}

static void share(int64_t others, const std::shared_ptr<std::function<void()>>& work) {
  for (int64_t k = 0; k < others; k++) std::thread([work] { (*work)(); }).detach();
}

struct Answer {
  std::vector<float> losses, each, gradient;
};

static bool near(const std::vector<float>& a, const std::vector<float>& b) {
  float scale = 1e-3f;
  for (float x : a)
    if (std::isfinite(x)) scale = std::max(scale, std::fabs(x));
  for (size_t i = 0; i < a.size(); i++)
    if (std::isnan(a[i]) != std::isnan(b[i]) || std::fabs(a[i] - b[i]) > 1e-4f * scale) return false;
  return true;
}

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? atoi(argv[1]) : 200;
  source.seed(argc > 2 ? atoi(argv[2]) : 1);
  const Kernel* kernels[4];
  int count = 0;
  for (const char* name : {"avx512", "avx2", "neon", "plain"})
    if (const Kernel* kernel = kernel_for(name)) kernels[count++] = kernel;
  broken_programs();
  for (int round = 0; round < rounds; round++) {
    const std::vector<int32_t> code = program();
    Plan first;
    const std::string wrong = build(code.data(), (int64_t)code.size(), kernel_plain.blocking, false, &first);
    if (!wrong.empty()) return printf("round %d: a good program was refused: %s\n", round, wrong.c_str()), 1;
    const int64_t samples = 1 + below(300), blocks = (samples + kBlock - 1) / kBlock, models = 1 + below(3);
    auto data = exact<float>(blocks * first.features * kBlock), thetas = exact<float>(models * first.parameters);
    auto targets = exact<float>(blocks * first.outputs * kBlock), weights = exact<float>(blocks * kBlock, 1.0f);
    auto labels = exact<int32_t>(blocks * kBlock);
    for (int64_t i = 0; i < blocks * first.features * kBlock; i++) data[i] = normal();
    for (int64_t i = 0; i < models * first.parameters; i++) thetas[i] = 0.3f * normal();
    for (int64_t i = 0; i < blocks * first.outputs * kBlock; i++) targets[i] = normal();
    for (int64_t i = 0; i < blocks * kBlock; i++) labels[i] = below((int)first.outputs + 2) - 1;
    Request r;
    r.models = models, r.samples = samples, r.thetas = thetas.get(), r.data = data.get(), r.kind = below(4);
    if (r.kind == kSquaredError) r.targets = targets.get();
    if (r.kind == kCrossEntropy || r.kind == kZeroOne) r.labels = labels.get();
    if (below(2)) r.weights = weights.get();
    std::unique_ptr<int32_t[]> which;
    const int select = below(3);
    if (select == 1) {
      r.range_rows = below(2) ? models : 1;
      which = exact<int32_t>(2 * r.range_rows);
      for (int i = 0; i < 2 * r.range_rows; i++) which[i] = below((int)samples + 10) - 2;
      r.ranges = which.get();
    } else if (select == 2) {
      r.index_rows = below(2) ? models : 1, r.index_size = 1 + below(60);
      which = exact<int32_t>(r.index_rows * r.index_size);
      for (int i = 0; i < r.index_rows * r.index_size; i++) which[i] = below((int)samples + 10) - 2;
      r.index = which.get();
    }
    r.listed = r.index ? r.index_size : 1 + below((int)samples);
    Answer wanted;
    for (int k = 0; k < count; k++)
      for (const int threads : {1, 3}) {
        Plan plan, kept;
        build(code.data(), (int64_t)code.size(), kernels[k]->blocking, false, &plan);
        build(code.data(), (int64_t)code.size(), kernels[k]->blocking, true, &kept);
        Request now = r;
        now.kernel = kernels[k], now.plan = &plan;
        const int64_t width = r.kind == kOutputs ? plan.outputs : 1;
        auto losses = exact<float>(models), each = exact<float>(models * r.listed * width), gradient = exact<float>(models * plan.parameters);
        now.per_sample = each.get();
        run(now, threads, share);
        now.per_sample = nullptr, now.losses = losses.get();
        if (r.kind != kOutputs) run(now, threads, share);
        if (r.kind == kCrossEntropy || r.kind == kSquaredError) {
          now.plan = &kept, now.gradient = gradient.get();
          run(now, threads, share);
        }
        Answer got = {{losses.get(), losses.get() + models}, {each.get(), each.get() + models * r.listed * width}, {gradient.get(), gradient.get() + models * plan.parameters}};
        if (k == 0 && threads == 1) wanted = got;
        const bool same = r.kind == kZeroOne || (near(wanted.losses, got.losses) && near(wanted.each, got.each) && near(wanted.gradient, got.gradient));
        if (!same) return printf("round %d: %s with %d threads differs from %s\n", round, kernels[k]->name, threads, kernels[0]->name), 1;
      }
  }
  printf("%d programs, %d targets: clean\n", rounds, count);
  return 0;
}
