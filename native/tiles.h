// The inner loop: `places` times `group` sums in registers, over all taps of their window.
#ifndef TILTWALK_TILES_H_
#define TILTWALK_TILES_H_

#include "simd.h"

namespace tiltwalk {
namespace TILTWALK_TARGET {

// Registers: 32 on AVX-512 and Arm, 16 on the others. A tile holds its sums, its inputs and one weight.
#if TILTWALK_LANES == 16 || (defined(__ARM_NEON) && defined(__aarch64__))
constexpr int kPoolGroup = 6;
constexpr Blocking kBlocking = {kLanes, 3, {{2, 13}, {4, 6}, {8, 3}}, kPoolGroup, {{4, 6}, {5, 5}, {6, 4}}};
#elif TILTWALK_LANES == 8
constexpr int kPoolGroup = 3;
constexpr Blocking kBlocking = {kLanes, 3, {{2, 6}, {4, 3}, {1, 12}}, kPoolGroup, {{4, 3}, {5, 2}, {3, 4}}};
#else  // a product needs a register before it is added
constexpr int kPoolGroup = 2;
constexpr Blocking kBlocking = {kLanes, 3, {{2, 6}, {4, 2}, {1, 12}}, kPoolGroup, {{4, 2}, {5, 2}, {3, 3}}};
#endif

struct Tiles {
  const float *in, *panel;
  float* out;
  int32_t* mask;  // see Step; null where nobody asks
  const int32_t *tap, *position, *target;
  const int32_t* range;  // of taps for each tile, for kRanged: see Back
  int64_t plane, mask_plane;  // floats from one filter's output to the next, and of its mask
  int taps, tiles, row, column;
  Pooling pool;
  bool relu_before, relu_after;
};

enum Taps { kListed, kDenseTaps, kRanged };

template <int kTile, int kGroup, Taps kTaps>
void tiles(const Tiles& t) {
  for (int n = 0; n < t.tiles; n++) {
    const float* in[kTile];
    TILTWALK_UNROLL for (int p = 0; p < kTile; p++) in[p] = t.in + t.position[n * kTile + p];
    Vec sum[kTile][kGroup];
    TILTWALK_UNROLL for (int g = 0; g < kGroup; g++) {
      const Vec b = broadcast(t.panel[g]);
      TILTWALK_UNROLL for (int p = 0; p < kTile; p++) sum[p][g] = b;
    }
    const int32_t* range = kTaps == kRanged ? t.range + 4 * n : nullptr;
    const int rows = kTaps == kRanged ? range[1] : 1;
    for (int row = kTaps == kRanged ? range[0] : 0; row < rows; row++) {
      const int first = kTaps == kRanged ? row * t.row + range[2] * t.column : 0;
      const int last = kTaps == kRanged ? row * t.row + range[3] * t.column : t.taps;
      const float* w = t.panel + kGroup + (int64_t)first * kGroup;
      for (int k = first; k < last; k++, w += kGroup) {
        const int64_t at = kTaps == kDenseTaps ? (int64_t)k * kBlock : t.tap[k];
        if (kTile <= kGroup) {  // the shorter side stays in registers, the longer goes through one
          Vec x[kTile];
          TILTWALK_UNROLL for (int p = 0; p < kTile; p++) x[p] = load(in[p] + at);
          TILTWALK_UNROLL for (int g = 0; g < kGroup; g++) {
            const Vec weight = broadcast(w[g]);
            TILTWALK_UNROLL for (int p = 0; p < kTile; p++) sum[p][g] += x[p] * weight;
          }
        } else {
          Vec weight[kGroup];
          TILTWALK_UNROLL for (int g = 0; g < kGroup; g++) weight[g] = broadcast(w[g]);
          TILTWALK_UNROLL for (int p = 0; p < kTile; p++) {
            const Vec x = load(in[p] + at);
            TILTWALK_UNROLL for (int g = 0; g < kGroup; g++) sum[p][g] += x * weight[g];
          }
        }
      }
    }
    if (t.pool == kNoPool) {
      TILTWALK_UNROLL for (int p = 0; p < kTile; p++) {
        float* out = t.out + t.target[n * kTile + p];
        TILTWALK_UNROLL for (int g = 0; g < kGroup; g++) store(out + g * t.plane, t.relu_after ? relu(sum[p][g]) : sum[p][g]);
      }
      continue;
    }
    float* out = t.out + t.target[n];
    TILTWALK_UNROLL for (int g = 0; g < kGroup; g++) {
      Vec a = sum[0][g];
      Int mask = whole(0);
      if (t.pool == kMaximum) {
        TILTWALK_UNROLL for (int p = 1; p < kTile; p++) a = larger(sum[p][g], a);
        if (t.mask) TILTWALK_UNROLL for (int p = 0; p < kTile; p++) mask = mask | ((sum[p][g] == a) & whole(1 << p));
      } else {
        if (t.mask) TILTWALK_UNROLL for (int p = 0; p < kTile; p++) mask = mask | ((sum[p][g] > broadcast(0)) & whole(1 << p));
        if (t.relu_before) a = relu(a);
        TILTWALK_UNROLL for (int p = 1; p < kTile; p++) a += t.relu_before ? relu(sum[p][g]) : sum[p][g];
        a = a * broadcast(1.0f / kTile);
      }
      store(out + g * t.plane, t.relu_after ? relu(a) : a);
      if (t.mask) memcpy(t.mask + (int64_t)n * kBlock + g * t.mask_plane, &mask, sizeof mask);
    }
  }
}

// From the numbers of a step to the instance that has them compiled in.
template <int kTile, int kGroup>
struct Choose {
  static void run(int group, Taps taps, const Tiles& t) {
    if (group != kGroup) return Choose<kTile, kGroup - 1>::run(group, taps, t);
    if (taps == kDenseTaps) return tiles<kTile, kGroup, kDenseTaps>(t);
    if (taps == kRanged) return tiles<kTile, kGroup, kRanged>(t);
    tiles<kTile, kGroup, kListed>(t);
  }
};
template <int kTile>
struct Choose<kTile, 0> {
  static void run(int, Taps, const Tiles&) {}
};

static void run_tiles(int tile, int group, Taps taps, const Tiles& t) {
  switch (tile) {
    case 2: return Choose<2, kBlocking.shape[0].group>::run(group, taps, t);
    case 4: return Choose<4, kBlocking.shape[1].group>::run(group, taps, t);
    default: return Choose<kBlocking.shape[2].tile, kBlocking.shape[2].group>::run(group, taps, t);
  }
}

}  // namespace TILTWALK_TARGET
}  // namespace tiltwalk

#endif  // TILTWALK_TILES_H_
