// One vector of samples, for the target that this file is compiled for. GCC and Clang vectors do the arithmetic; a multiply
// and an add become one instruction where the target has it. Compilers without them (or TILTWALK_ARRAYS) get arrays of four.
#ifndef TILTWALK_SIMD_H_
#define TILTWALK_SIMD_H_

#include <stdint.h>
#include <string.h>

#include "plan.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#define TILTWALK_LANES 16
#elif defined(__AVX2__)
#include <immintrin.h>
#define TILTWALK_LANES 8
#else
#define TILTWALK_LANES 4
#if defined(__ARM_NEON) && defined(__aarch64__)
#include <arm_neon.h>
#endif
#endif

namespace tiltwalk {
namespace TILTWALK_TARGET {

constexpr int kLanes = TILTWALK_LANES;
constexpr int kVectors = kBlock / kLanes;  // vectors in a block

#if defined(__GNUC__) && !defined(TILTWALK_ARRAYS)

typedef float Vec __attribute__((vector_size(TILTWALK_LANES * 4)));
typedef int32_t Int __attribute__((vector_size(TILTWALK_LANES * 4)));
typedef float Loose __attribute__((vector_size(TILTWALK_LANES * 4), aligned(4), may_alias));

TILTWALK_INLINE Vec load(const float* p) { return *(const Loose*)p; }
TILTWALK_INLINE void store(float* p, Vec v) { *(Loose*)p = v; }
TILTWALK_INLINE Vec broadcast(float x) {
#if TILTWALK_LANES == 16
  return Vec{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
#elif TILTWALK_LANES == 8
  return Vec{x, x, x, x, x, x, x, x};
#else
  return Vec{x, x, x, x};
#endif
}
TILTWALK_INLINE Vec bits(Int v) { return (Vec)v; }
TILTWALK_INLINE Int bits(Vec v) { return (Int)v; }
TILTWALK_INLINE Int whole(int32_t x) { return bits(broadcast(0)) + x; }
TILTWALK_INLINE Vec number(Int v) { return __builtin_convertvector(v, Vec); }
TILTWALK_INLINE Vec select(Int which, Vec yes, Vec no) { return bits((bits(yes) & which) | (bits(no) & ~which)); }
#if defined(__clang__)
#define TILTWALK_UNROLL _Pragma("clang loop unroll(full)")
#else
#define TILTWALK_UNROLL _Pragma("GCC unroll 32")
#endif
// Loads once into a register what the compiler would load again with every product.
#if TILTWALK_LANES == 16
#define TILTWALK_KEEP(x) asm("" : "+v"(x))
#elif TILTWALK_LANES == 8
#define TILTWALK_KEEP(x) asm("" : "+x"(x))
#else
#define TILTWALK_KEEP(x)
#endif

#else

struct Int {
  int32_t v[4];
};
struct Vec {
  float v[4];
};
#define TILTWALK_EACH(type, expression) \
  type r;                               \
  for (int i = 0; i < 4; i++) r.v[i] = (expression); \
  return r
TILTWALK_INLINE Vec load(const float* p) { TILTWALK_EACH(Vec, p[i]); }
TILTWALK_INLINE void store(float* p, Vec v) {
  for (int i = 0; i < 4; i++) p[i] = v.v[i];
}
TILTWALK_INLINE Vec broadcast(float x) { TILTWALK_EACH(Vec, x); }
TILTWALK_INLINE Vec operator+(Vec a, Vec b) { TILTWALK_EACH(Vec, a.v[i] + b.v[i]); }
TILTWALK_INLINE Vec operator-(Vec a, Vec b) { TILTWALK_EACH(Vec, a.v[i] - b.v[i]); }
TILTWALK_INLINE Vec operator*(Vec a, Vec b) { TILTWALK_EACH(Vec, a.v[i] * b.v[i]); }
TILTWALK_INLINE Vec operator/(Vec a, Vec b) { TILTWALK_EACH(Vec, a.v[i] / b.v[i]); }
TILTWALK_INLINE Vec& operator+=(Vec& a, Vec b) { return a = a + b; }
TILTWALK_INLINE Int operator<(Vec a, Vec b) { TILTWALK_EACH(Int, a.v[i] < b.v[i] ? -1 : 0); }
TILTWALK_INLINE Int operator>(Vec a, Vec b) { TILTWALK_EACH(Int, a.v[i] > b.v[i] ? -1 : 0); }
TILTWALK_INLINE Int operator!=(Vec a, Vec b) { TILTWALK_EACH(Int, a.v[i] != b.v[i] ? -1 : 0); }
TILTWALK_INLINE Int operator==(Vec a, Vec b) { TILTWALK_EACH(Int, a.v[i] == b.v[i] ? -1 : 0); }
TILTWALK_INLINE Int operator&(Int a, Int b) { TILTWALK_EACH(Int, a.v[i] & b.v[i]); }
TILTWALK_INLINE Int operator|(Int a, Int b) { TILTWALK_EACH(Int, a.v[i] | b.v[i]); }
TILTWALK_INLINE Int operator~(Int a) { TILTWALK_EACH(Int, ~a.v[i]); }
TILTWALK_INLINE Int operator+(Int a, Int b) { TILTWALK_EACH(Int, (int32_t)((uint32_t)a.v[i] + (uint32_t)b.v[i])); }
TILTWALK_INLINE Int operator-(Int a, Int b) { TILTWALK_EACH(Int, (int32_t)((uint32_t)a.v[i] - (uint32_t)b.v[i])); }
TILTWALK_INLINE Int operator<<(Int a, int n) { TILTWALK_EACH(Int, (int32_t)((uint32_t)a.v[i] << n)); }
TILTWALK_INLINE Int operator>>(Int a, int n) { TILTWALK_EACH(Int, a.v[i] >> n); }
TILTWALK_INLINE Vec bits(Int v) {
  Vec r;
  memcpy(&r, &v, sizeof r);
  return r;
}
TILTWALK_INLINE Int bits(Vec v) {
  Int r;
  memcpy(&r, &v, sizeof r);
  return r;
}
TILTWALK_INLINE Int whole(int32_t x) { TILTWALK_EACH(Int, x); }
TILTWALK_INLINE Vec number(Int v) { TILTWALK_EACH(Vec, (float)v.v[i]); }
TILTWALK_INLINE Vec select(Int which, Vec yes, Vec no) { return bits((bits(yes) & which) | (bits(no) & ~which)); }
#define TILTWALK_UNROLL
#define TILTWALK_KEEP(x)

#endif

// NaN in either stays NaN, as in JAX; the machines' own maximum keeps only the second operand's, Arm's both.
TILTWALK_INLINE Vec larger(Vec a, Vec b) {
#if TILTWALK_LANES == 16
  return (Vec)_mm512_mask_mov_ps(_mm512_max_ps((__m512)a, (__m512)b), _mm512_cmp_ps_mask((__m512)a, (__m512)a, _CMP_UNORD_Q), (__m512)a);
#elif TILTWALK_LANES == 8
  const __m256 nan = _mm256_cmp_ps((__m256)a, (__m256)a, _CMP_UNORD_Q);
  return (Vec)_mm256_blendv_ps(_mm256_max_ps((__m256)a, (__m256)b), (__m256)a, nan);
#elif defined(__ARM_NEON) && defined(__aarch64__)
  return (Vec)vmaxq_f32((float32x4_t)a, (float32x4_t)b);
#else
  return select((a > b) | (a != a), a, b);
#endif
}

TILTWALK_INLINE Vec relu(Vec a) {
#if TILTWALK_LANES == 16
  return (Vec)_mm512_max_ps(_mm512_setzero_ps(), (__m512)a);
#elif TILTWALK_LANES == 8
  return (Vec)_mm256_max_ps(_mm256_setzero_ps(), (__m256)a);
#else
  const Vec zero = broadcast(0);
  return select(zero > a, zero, a);
#endif
}

}  // namespace TILTWALK_TARGET
}  // namespace tiltwalk

#endif  // TILTWALK_SIMD_H_
