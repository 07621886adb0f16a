// Work is cut into chunks of samples whose sums are kept apart and added up in order at the end: the result does not depend
// on who did what. A thread takes a model and a run of its chunks, puts the weights in order once, and goes.
#include "run.h"

#include <string.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <vector>

namespace tiltwalk {
namespace {

constexpr int kChunk = 8;             // blocks whose losses are summed together
constexpr double kAlone = 2e6;        // operations below which other threads cost more than they give
constexpr int kItems = 8;             // pieces of work a thread, for balance
constexpr int kSegments = 8;          // pieces of a model whose derivatives are collected apart, then added in order

// Memory of threads, given back and taken again: fresh pages would cost as much as a small call.
class Store {
 public:
  struct Memory {
    std::vector<float> room;
    float* at(int64_t floats) {
      if ((int64_t)room.size() < floats + 16) room = std::vector<float>(floats + 16);
      return (float*)(((uintptr_t)room.data() + 63) / 64 * 64);
    }
  };
  std::unique_ptr<Memory> take() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (free_.empty()) return std::make_unique<Memory>();
    std::unique_ptr<Memory> memory = std::move(free_.back());
    free_.pop_back();
    return memory;
  }
  void give(std::unique_ptr<Memory> memory) {
    std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(std::move(memory));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Memory>> free_;
};

Store& store() {
  static Store* kept = new Store;  // never destroyed: threads may outlive main
  return *kept;
}

// The samples of one model, as positions 0 .. count - 1 that stand for numbers of samples.
struct Selection {
  const int32_t* index = nullptr;
  int64_t start = 0, count = 0, samples = 0;

  Selection(const Request& r, int64_t model) : samples(r.samples) {
    if (r.index) {
      index = r.index + (r.index_rows > 1 ? model : 0) * r.index_size;
      count = r.index_size;
    } else {
      const int32_t* range = r.ranges ? r.ranges + (r.range_rows > 1 ? model : 0) * 2 : nullptr;
      start = range ? std::min<int64_t>(std::max(range[0], 0), samples) : 0;
      count = range ? std::min<int64_t>(std::max(range[1], 0), samples - start) : samples;
    }
  }

  // Number of the sample at a position; out of range it is brought back as JAX's indexing does.
  int64_t operator[](int64_t k) const {
    if (!index) return start + k;
    int64_t n = index[k];
    if (n < 0) n += samples;
    return std::min(std::max<int64_t>(n, 0), samples - 1);
  }

  // Where block `b` of the selection lies in the data as it is, its first sample; -1 where it has to be gathered. Ranges are
  // cut at the data's own blocks, so that only lists are gathered.
  int64_t blocks() const { return index ? (count + kBlock - 1) / kBlock : count ? (start + count - 1) / kBlock - start / kBlock + 1 : 0; }
};

// One block of a selection: where it is, and which lanes belong to it.
struct Block {
  int64_t number = -1;  // of the data's block; -1: gathered
  int64_t position[kBlock];  // in the selection; -1: not in it
  int64_t sample[kBlock];
};

Block block_of(const Selection& s, int64_t b) {
  Block out;
  if (!s.index) {
    out.number = s.start / kBlock + b;
    for (int n = 0; n < kBlock; n++) {
      out.sample[n] = out.number * kBlock + n;
      const int64_t k = out.sample[n] - s.start;
      out.position[n] = k >= 0 && k < s.count ? k : -1;
    }
    return out;
  }
  bool straight = true;
  for (int n = 0; n < kBlock; n++) {
    const int64_t k = b * kBlock + n;
    out.position[n] = k < s.count ? k : -1;
    out.sample[n] = s[std::min(k, s.count - 1)];
    straight = straight && out.sample[n] == out.sample[0] + n;
  }
  if (straight && out.sample[0] % kBlock == 0) out.number = out.sample[0] / kBlock;
  return out;
}

// The same with samples that do not belong to the selection replaced by one that does: on the way back their values are
// multiplied by 0, which a NaN among them would survive.
Block filled(Block block) {
  int own = 0;
  while (block.position[own] < 0) own++;
  for (int n = 0; n < kBlock; n++)
    if (block.position[n] < 0) block.sample[n] = block.sample[own], block.number = -1;
  return block;
}

void gather(const float* from, int64_t width, const Block& block, float* to) {
  for (int n = 0; n < kBlock; n++) {
    const float* x = from + block.sample[n] / kBlock * width * kBlock + block.sample[n] % kBlock;
    for (int64_t k = 0; k < width; k++) to[k * kBlock + n] = x[k * kBlock];
  }
}

struct Worker {
  const Request& r;
  const Plan& plan = *r.plan;
  std::unique_ptr<Store::Memory> memory = store().take();
  float *packed, *values, *gathered, *targets, *slopes, *derivatives;
  int64_t model = -1;

  explicit Worker(const Request& request) : r(request) {
    const int64_t data = plan.pass * plan.features * kBlock, out = plan.pass * plan.outputs * kBlock;
    packed = memory->at(plan.packed + plan.memory + data + 2 * out + plan.sums);
    values = packed + plan.packed, gathered = values + plan.memory, targets = gathered + data, slopes = targets + out;
    derivatives = slopes + out;
  }
  ~Worker() { store().give(std::move(memory)); }

  void load(int64_t m) {
    if (m == model) return;
    r.kernel->pack(plan, r.thetas + m * plan.parameters, packed);
    if (r.gradient) r.kernel->pack_back(plan, r.thetas + m * plan.parameters, packed);
    model = m;
  }

  // The data of some blocks that follow each other: where they are, or gathered.
  const float* inputs(const Block* blocks, int n) {
    bool together = true;
    for (int k = 0; k < n; k++) together = together && blocks[k].number >= 0 && blocks[k].number == blocks[0].number + k;
    const int64_t size = plan.features * kBlock;
    if (together) return r.data + blocks[0].number * size;
    for (int k = 0; k < n; k++) {
      if (blocks[k].number >= 0)
        memcpy(gathered + k * size, r.data + blocks[k].number * size, size * sizeof(float));
      else
        gather(r.data, plan.features, blocks[k], gathered + k * size);
    }
    return gathered;
  }

  void head(const Block& block, const float* out, float* losses, float* back) {
    int32_t labels[kBlock] = {0};
    if (r.labels)
      for (int n = 0; n < kBlock; n++) labels[n] = r.labels[block.sample[n]];
    const float* y = r.targets;
    if (y && block.number >= 0) {
      y += block.number * plan.outputs * kBlock;
    } else if (y) {
      gather(r.targets, plan.outputs, block, targets);
      y = targets;
    }
    r.kernel->head(r.kind, out, plan.outputs, labels, y, losses);
    if (!back) return;
    float weights[kBlock];
    int32_t used[kBlock];
    for (int n = 0; n < kBlock; n++) {
      weights[n] = r.weights ? r.weights[block.sample[n]] : 1.0f;
      used[n] = block.position[n] < 0 ? 0 : -1;
    }
    r.kernel->head_slopes(r.kind, out, plan.outputs, labels, y, weights, used, back);
  }

  void write_outputs(int64_t m, const Block& block, const float* out) {
    for (int n = 0; n < kBlock; n++) {
      if (block.position[n] < 0 || block.position[n] >= r.listed) continue;
      float* to = r.per_sample + (m * r.listed + block.position[n]) * plan.outputs;
      for (int64_t k = 0; k < plan.outputs; k++) to[k] = out[k * kBlock + n];
    }
  }

  double chunk(int64_t m, const Selection& s, int64_t first, int64_t last) {
    double sum = 0;
    load(m);
    Block blocks[8];
    for (int64_t b = first; b < last; b += plan.pass) {
      const int n = (int)std::min<int64_t>(plan.pass, last - b);
      for (int k = 0; k < n; k++) blocks[k] = r.gradient ? filled(block_of(s, b + k)) : block_of(s, b + k);
      const float* data = inputs(blocks, n);
      const float* out = r.kernel->forward(plan, packed, data, n, values);
      for (int k = 0; k < n; k++, out += plan.outputs * kBlock) {
        if (r.kind == kOutputs) {
          write_outputs(m, blocks[k], out);
          continue;
        }
        float losses[kBlock];
        head(blocks[k], out, losses, r.gradient ? slopes + k * plan.outputs * kBlock : nullptr);
        for (int i = 0; i < kBlock; i++) {
          if (blocks[k].position[i] < 0) continue;
          if (r.weights) losses[i] *= r.weights[blocks[k].sample[i]];
          sum += losses[i];
          if (r.per_sample && blocks[k].position[i] < r.listed) r.per_sample[m * r.listed + blocks[k].position[i]] = losses[i];
        }
      }
      if (r.gradient) r.kernel->reverse(plan, packed, data, n, slopes, values, derivatives);
    }
    return sum;
  }

  // Adds what a segment collected to the model's gradient, in the order of the parameters.
  void add_to(float* gradient, bool first, float scale) const {
    auto add = [&](float* to, const float* from, int64_t n) {
      for (int64_t k = 0; k < n; k++) to[k] = ((first ? 0 : to[k]) + from[k]) * scale;
    };
    for (const Step& step : plan.steps) {
      if (step.what != kAffine) continue;
      for (int t = 0; t < step.taps; t++)
        add(gradient + step.weight + (step.flat ? t : step.row[t]) * (int64_t)step.filters, derivatives + step.sums + t * step.width, step.filters);
      add(gradient + step.bias, derivatives + step.bias_sums, step.filters);
    }
  }
};

// Shared by the threads of one call; those that come late find nothing to do and touch nothing else.
struct Progress {
  std::atomic<int64_t> next{0}, done{0};
  std::mutex mutex;
  std::condition_variable all_done;
  std::mutex order;
  std::condition_variable in_turn;
  std::vector<int64_t> added;  // segments of each model whose derivatives are in its gradient
};

}  // namespace

void run(const Request& r, int64_t threads, const Share& share) {
  int64_t most = 0;  // chunks of a model
  double blocks = 0;
  for (int64_t m = 0; m < r.models; m++) {
    const Selection s(r, m);
    most = std::max(most, (s.blocks() + kChunk - 1) / kChunk);
    blocks += (double)s.blocks();
    if (r.per_sample && s.count < r.listed) {  // nothing stands for samples that are not there
      const int64_t width = r.kind == kOutputs ? r.plan->outputs : 1;
      float* row = r.per_sample + m * r.listed * width;
      std::fill(row + s.count * width, row + r.listed * width, std::numeric_limits<float>::quiet_NaN());
    }
  }
  std::vector<double> sums(r.models * most);
  if (blocks * kBlock * r.plan->flops < kAlone) threads = 1;
  threads = std::max<int64_t>(threads, 1);
  const int64_t wanted = threads == 1 ? 1 : (threads * kItems + r.models - 1) / std::max<int64_t>(r.models, 1);
  const int64_t pieces = std::max<int64_t>(1, std::min<int64_t>(most, r.gradient ? kSegments : wanted)), items = most ? r.models * pieces : 0;

  auto progress = std::make_shared<Progress>();
  if (r.gradient) progress->added.resize(r.models);
  if (r.gradient && !items) std::fill_n(r.gradient, r.models * r.plan->parameters, std::numeric_limits<float>::quiet_NaN());
  auto work = std::make_shared<std::function<void()>>();
  double* const out = sums.data();
  *work = [progress, items, pieces, most, out, &r] {
    int64_t item = progress->next++;
    if (item >= items) return;
    int64_t finished = 0;
    {
      Worker worker(r);
      for (; item < items; item = progress->next++, finished++) {
        const int64_t m = item / pieces, piece = item % pieces;
        const Selection s(r, m);
        if (r.gradient) std::fill_n(worker.derivatives, worker.plan.sums, 0.0f);
        for (int64_t c = piece * most / pieces; c < (piece + 1) * most / pieces; c++) {
          const int64_t last = std::min((c + 1) * kChunk, s.blocks());
          if (c * kChunk < last) out[m * most + c] = worker.chunk(m, s, c * kChunk, last);
        }
        if (!r.gradient) continue;
        // Segments are handed out in order, so the one that is waited for is being worked on.
        std::unique_lock<std::mutex> lock(progress->order);
        progress->in_turn.wait(lock, [&] { return progress->added[m] == piece; });
        lock.unlock();
        worker.add_to(r.gradient + m * worker.plan.parameters, piece == 0, piece == pieces - 1 ? 1.0f / (float)s.count : 1.0f);
        lock.lock();
        progress->added[m]++;
        progress->in_turn.notify_all();
      }
    }
    if ((progress->done += finished) == items) {
      std::lock_guard<std::mutex> lock(progress->mutex);
      progress->all_done.notify_all();
    }
  };
  if (items > 1 && threads > 1) share(std::min(threads, items) - 1, work);
  (*work)();
  {
    std::unique_lock<std::mutex> lock(progress->mutex);
    progress->all_done.wait(lock, [&] { return progress->done == items; });
  }
  if (!r.losses) return;
  for (int64_t m = 0; m < r.models; m++) {
    double total = 0;
    for (int64_t c = 0; c < most; c++) total += out[m * most + c];
    r.losses[m] = (float)(total / (double)Selection(r, m).count);
  }
}

const Kernel* kernel_for(const char* name) {
  const bool any = !name || !*name;
#ifdef TILTWALK_HAS_AVX512
  if ((any || !strcmp(name, "avx512")) && __builtin_cpu_supports("avx512f")) return &kernel_avx512;
#endif
#ifdef TILTWALK_HAS_AVX2
  if ((any || !strcmp(name, "avx2")) && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &kernel_avx2;
#endif
#ifdef TILTWALK_HAS_NEON
  if (any || !strcmp(name, "neon")) return &kernel_neon;
#endif
  if (any || !strcmp(name, "plain")) return &kernel_plain;
  return nullptr;
}

}  // namespace tiltwalk
