// Sums of products for the weights' derivatives: of a convolution over samples and places, of a dense layer over samples.
#ifndef TILTWALK_OUTER_H_
#define TILTWALK_OUTER_H_

#include "simd.h"
#include "tiles.h"

namespace tiltwalk {
namespace TILTWALK_TARGET {

TILTWALK_INLINE float total(Vec v) {
#if TILTWALK_LANES == 16
  return _mm512_reduce_add_ps((__m512)v);
#else
  float x[kLanes];
  store(x, v);
  for (int width = kLanes / 2; width; width /= 2)
    for (int n = 0; n < width; n++) x[n] += x[n + width];
  return x[0];
#endif
}

// A convolution: sums[tap][filter] += sum over places and samples of in[tap + place] * slope[filter + place]. The samples lie
// along the vectors, which are added up at the end.
struct Outer {
  const float *in, *slope;
  float* sums;
  const int32_t *tap, *source, *at;
  int64_t plane, width;  // floats from one filter's slopes to the next, and from one tap's sums to the next
  int taps, places;
};

template <int kTile, int kGroup>
void outer(const Outer& t) {
  for (int first = 0; first < t.taps; first += kTile) {
    const float* in[kTile];
    const int used = t.taps - first < kTile ? t.taps - first : kTile;
    TILTWALK_UNROLL for (int p = 0; p < kTile; p++) in[p] = t.in + t.tap[first + (p < used ? p : used - 1)];
    Vec sum[kTile][kGroup];
    TILTWALK_UNROLL for (int p = 0; p < kTile; p++)
      TILTWALK_UNROLL for (int g = 0; g < kGroup; g++) sum[p][g] = broadcast(0);
    for (int v = 0; v < kBlock; v += kLanes)
      for (int n = 0; n < t.places; n++) {
        const float* slope = t.slope + t.at[n] + v;
        const int64_t from = t.source[n] + v;
        if (kTile <= kGroup) {
          Vec x[kTile];
          TILTWALK_UNROLL for (int p = 0; p < kTile; p++) x[p] = load(in[p] + from);
          TILTWALK_UNROLL for (int g = 0; g < kGroup; g++) {
            Vec y = load(slope + g * t.plane);
            TILTWALK_KEEP(y);
            TILTWALK_UNROLL for (int p = 0; p < kTile; p++) sum[p][g] += x[p] * y;
          }
        } else {
          Vec y[kGroup];
          TILTWALK_UNROLL for (int g = 0; g < kGroup; g++) y[g] = load(slope + g * t.plane);
          TILTWALK_UNROLL for (int p = 0; p < kTile; p++) {
            Vec x = load(in[p] + from);
            TILTWALK_KEEP(x);
            TILTWALK_UNROLL for (int g = 0; g < kGroup; g++) sum[p][g] += x * y[g];
          }
        }
      }
    TILTWALK_UNROLL for (int p = 0; p < kTile; p++) {
      if (p >= used) continue;
      float* to = t.sums + (first + p) * t.width;
      TILTWALK_UNROLL for (int g = 0; g < kGroup; g++) to[g] += total(sum[p][g]);
    }
  }
}

template <int kTile, int kGroup>
struct ChooseOuter {
  static void run(int group, const Outer& t) {
    if (group != kGroup) return ChooseOuter<kTile, kGroup - 1>::run(group, t);
    outer<kTile, kGroup>(t);
  }
};
template <int kTile>
struct ChooseOuter<kTile, 0> {
  static void run(int, const Outer&) {}
};

static void run_outer(int tile, int group, const Outer& t) {
  constexpr auto& shape = kBlocking.outer;
  if (tile == shape[0].tile) return ChooseOuter<shape[0].tile, shape[0].group>::run(group, t);
  if (tile == shape[1].tile) return ChooseOuter<shape[1].tile, shape[1].group>::run(group, t);
  ChooseOuter<shape[2].tile, shape[2].group>::run(group, t);
}

// A dense layer: sums[i][o] += sum over samples of in[i] * slope[o]. The slopes come with the outputs along the vectors,
// [sample][width], so that nothing has to be added up across a vector.
struct Products {
  const float *in, *turned;
  float* sums;
  int64_t stride;  // floats from one block of the input to the next
  int64_t width;
  int inputs, blocks;
};

template <int kTile, int kGroup>
void products(const Products& t, int first, int64_t column) {
  Vec sum[kTile][kGroup];
  float* const to = t.sums + first * t.width + column;
  TILTWALK_UNROLL for (int p = 0; p < kTile; p++)
    TILTWALK_UNROLL for (int g = 0; g < kGroup; g++) sum[p][g] = load(to + p * t.width + g * kLanes);
  for (int b = 0; b < t.blocks; b++) {
    const float* in = t.in + b * t.stride + (int64_t)first * kBlock;
    const float* turned = t.turned + (int64_t)b * kBlock * t.width + column;
    for (int n = 0; n < kBlock; n++, turned += t.width) {
      Vec y[kGroup];
      TILTWALK_UNROLL for (int g = 0; g < kGroup; g++) y[g] = load(turned + g * kLanes);
      TILTWALK_UNROLL for (int p = 0; p < kTile; p++) {
        const Vec x = broadcast(in[p * kBlock + n]);
        TILTWALK_UNROLL for (int g = 0; g < kGroup; g++) sum[p][g] += x * y[g];
      }
    }
  }
  TILTWALK_UNROLL for (int p = 0; p < kTile; p++)
    TILTWALK_UNROLL for (int g = 0; g < kGroup; g++) store(to + p * t.width + g * kLanes, sum[p][g]);
}

#if TILTWALK_LANES == 16 || (defined(__ARM_NEON) && defined(__aarch64__))
constexpr int kRows = 6, kColumns = 4;
#elif TILTWALK_LANES == 8
constexpr int kRows = 4, kColumns = 3;
#else
constexpr int kRows = 4, kColumns = 2;
#endif

template <int kGroup>
void product_rows(const Products& t, int64_t column) {
  int i = 0;
  for (; i + kRows <= t.inputs; i += kRows) products<kRows, kGroup>(t, i, column);
  for (; i < t.inputs; i++) products<1, kGroup>(t, i, column);
}

static void run_products(const Products& t) {
  for (int64_t column = 0; column < t.width;) {
    const int64_t left = (t.width - column) / kLanes;
    if (left >= kColumns) {
      product_rows<kColumns>(t, column), column += kColumns * kLanes;
    } else if (left >= 2) {
      product_rows<2>(t, column), column += 2 * kLanes;
    } else {
      product_rows<1>(t, column), column += kLanes;
    }
  }
}

}  // namespace TILTWALK_TARGET
}  // namespace tiltwalk

#endif  // TILTWALK_OUTER_H_
