// What a layer program becomes before it runs: values with their places in memory, and steps that fill one from another.
//
// Samples are last and come in blocks of 16: a value of one block is [channels][rows][columns][16] floats. Convolutions and
// dense layers are one and the same step, `kAffine`: out[f] = bias[f] + sum_t weight[t][f] * in[offset of tap t]. A tile of it
// keeps `tile` places times `group` filters in registers; where 2 x 2 pooling follows, the four places are one window.
#ifndef TILTWALK_PLAN_H_
#define TILTWALK_PLAN_H_

#include <stdint.h>

#include <string>
#include <vector>

// Code that is compiled once per target must not leave inline functions behind for the linker to choose from: the one it
// keeps may hold instructions that the machine lacks.
#if defined(_MSC_VER)
#define TILTWALK_INLINE __forceinline
#else
#define TILTWALK_INLINE inline __attribute__((always_inline))
#endif

namespace tiltwalk {

constexpr int kBlock = 16;  // samples in a block, whatever the machine's vectors

enum Op { kConv = 1, kMaxPool, kAvgPool, kDense, kFlatten, kActivation };
enum Act { kIdentity = 0, kRelu, kTanh, kSigmoid, kGelu };
enum Kind { kCrossEntropy = 0, kSquaredError, kZeroOne, kOutputs };
enum StepKind { kAffine, kPool, kElementwise };
enum Pooling { kNoPool = 0, kMaximum, kMean };

// How much of a machine's register file a tile may take: (places, largest group of filters), and the fused 2 x 2 pooling.
struct Blocking {
  int lanes;
  int shapes;
  struct Shape {
    int tile, group;
  } shape[4];
  int pool_group;
  Shape outer[3];  // sums of products of two loaded vectors: taps times filters
};

struct Value {
  int channels = 0, height = 0, width = 0;
  int top = 0, left = 0, rows = 0, columns = 0;  // with the zeros around it that the next convolution wants
  int64_t offset = 0;                            // floats from the start of the thread's memory
  int64_t stride = 0;                            // floats from one block to the next; 0 where blocks share the place
  TILTWALK_INLINE int64_t plane() const { return (int64_t)rows * columns * kBlock; }
  TILTWALK_INLINE int64_t floats() const { return channels * plane(); }
  TILTWALK_INLINE bool padded() const { return rows != height || columns != width; }
  TILTWALK_INLINE int64_t place(int i, int j) const { return ((int64_t)(top + i) * columns + left + j) * kBlock; }
  TILTWALK_INLINE int64_t places() const { return (int64_t)channels * height * width; }
};

// Where the derivatives by a value lie, in the value's own shape without zeros around it.
struct Slope {
  bool wanted = false;  // some parameter comes before the value
  int64_t offset = 0, stride = 0;
};

// The derivatives by a convolution's outputs, with zeros around and between them, as its reverse wants.
struct Frame {
  int top = 0, left = 0, rows = 0, columns = 0, spread = 1;
  TILTWALK_INLINE int64_t plane() const { return (int64_t)rows * columns * kBlock; }
  TILTWALK_INLINE int64_t place(int i, int j) const {
    return ((int64_t)(top + i * spread) * columns + left + j * spread) * kBlock;
  }
};

// The step that carries derivatives back through an affine step: the same tiles, with the weights turned round. A tile takes
// only the taps that meet an output: `range` holds the first and last row and column of taps.
struct Back {
  int taps = 0, tile = 1, groups = 1, tiles = 0, row = 0, column = 0;
  int64_t packed = 0;
  const int32_t *tap = nullptr, *weight = nullptr, *position = nullptr, *target = nullptr, *range = nullptr;
  std::vector<int32_t> taps_at, weights_at, positions_at, targets_at, ranges_at;  // what the five point to
};

struct Step {
  StepKind what = kAffine;
  int in = 0, out = 0;
  bool flat = false;  // vectors, not images: all blocks of a pass at once
  Act act = kIdentity;
  // kPool, or the pooling fused into kAffine
  Pooling pool = kNoPool;
  int size = 1;
  bool relu_before = false, relu_after = false;
  // kAffine
  int taps = 0, filters = 0, tile = 1, groups = 1, tiles = 0;
  int64_t weight = 0, bias = 0, packed = 0;
  const int32_t *tap = nullptr, *row = nullptr, *position = nullptr, *target = nullptr;
  std::vector<int32_t> taps_at, rows_at, positions_at, targets_at;  // what the four point to
  TILTWALK_INLINE int group_size(int g) const { return filters / groups + (g < filters % groups); }
  int kernel = 0, channels = 0, stride = 1, low_i = 0, low_j = 0;
  // For the reverse pass: where the weights' derivatives are collected, with rows of `width` floats, and the places of all
  // outputs in the input and in the derivatives.
  Back back;
  Frame frame;
  int64_t sums = 0, bias_sums = 0, width = 0;
  int outer_tile = 4, outer_groups = 1, places = 0;
  int64_t mask = -1, mask_stride = 0;  // which of the four under a fused pooling pass the derivative on, a bit each
  const int32_t *source = nullptr, *slope = nullptr;
  std::vector<int32_t> sources_at, slopes_at;
};

struct Plan {
  Plan() = default;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  std::vector<Value> values;  // values[0] is the data
  std::vector<Step> steps;
  std::vector<Slope> slopes;  // beside the values, where they are kept
  const Value* value = nullptr;
  const Slope* slope = nullptr;
  const Step* step = nullptr;
  int count = 0, last = 0;  // steps; the value that is the output
  int first_flat = 0;       // steps before it run block by block
  int64_t features = 0, outputs = 0, parameters = 0;
  int64_t packed = 0, memory = 0;  // floats a thread needs for weights and for values
  int pass = 2;                    // blocks that go through the flat steps together
  int64_t frame = 0, turned = 0;   // places of the frames, and of a dense layer's slopes with the samples first
  int64_t sums = 0;                // floats of the derivatives by the parameters, as the kernel collects them
  double flops = 0;                // of one sample
};

// Reads an encoded program. Returns an empty string, or what is wrong. `keep` gives every value its own memory and fuses no
// pooling, which is what the reverse pass needs.
std::string build(const int32_t* code, int64_t size, const Blocking& blocking, bool keep, Plan* plan);

}  // namespace tiltwalk

#endif  // TILTWALK_PLAN_H_
