// Exponential, logarithm and the activations, on vectors, to about one unit in the last place. The polynomials are minimax
// fits over the reduced ranges. NaN goes through.
#ifndef TILTWALK_FUNCTIONS_H_
#define TILTWALK_FUNCTIONS_H_

#include "simd.h"

namespace tiltwalk {
namespace TILTWALK_TARGET {

// e^x with x held between -87.3 and 88.3: below and above it, what follows no longer sees the difference.
TILTWALK_INLINE Vec exponential(Vec x) {
  const Vec low = broadcast(-87.3f), high = broadcast(88.3f), shift = broadcast(12582912.f);
  x = select(x < low, low, select(x > high, high, x));
  const Vec shifted = x * broadcast(1.44269504f) + shift;  // adding 1.5 * 2^23 leaves the nearest whole number in the low bits
  const Vec n = shifted - shift;
  const Vec f = x - n * broadcast(0.693359375f) + n * broadcast(2.12194440e-4f);
  Vec p = broadcast(0.00139503f);
  p = p * f + broadcast(0.00836882f);
  p = p * f + broadcast(0.04166621f);
  p = p * f + broadcast(0.1666652f);
  p = p * f + broadcast(0.50000001f);
  p = p * f * f + f + broadcast(1);
  return p * bits((bits(shifted) - bits(shift) + whole(127)) << 23);
}

// log x for normal, positive x.
TILTWALK_INLINE Vec logarithm(Vec x) {
  const Int e = (bits(x) - whole(0x3f3504f3)) >> 23;  // x = 2^e (1 + f) with 1 + f between sqrt(1/2) and sqrt(2)
  const Vec f = bits(bits(x) - (e << 23)) - broadcast(1), n = number(e);
  Vec p = broadcast(0.06920596f);
  p = p * f + broadcast(-0.11780519f);
  p = p * f + broadcast(0.11865249f);
  p = p * f + broadcast(-0.12385593f);
  p = p * f + broadcast(0.14220009f);
  p = p * f + broadcast(-0.16669213f);
  p = p * f + broadcast(0.20002147f);
  p = p * f + broadcast(-0.24999986f);
  p = p * f + broadcast(0.33333312f);
  const Vec value = n * broadcast(0.693359375f) + (f + (f * f * (p * f - broadcast(0.5f)) - n * broadcast(2.12194440e-4f)));
  return select(x != x, x, value);
}

TILTWALK_INLINE Vec tangent(Vec x) {  // hyperbolic
  const Vec u = x * x, size = bits(bits(x) & whole(0x7fffffff));
  Vec p = broadcast(0.00212486f);
  p = p * u + broadcast(-0.00815891f);
  p = p * u + broadcast(0.02169384f);
  p = p * u + broadcast(-0.05394565f);
  p = p * u + broadcast(0.13333199f);
  p = p * u + broadcast(-0.33333331f);
  const Vec near = x + x * u * p;
  const Vec far = broadcast(1) - broadcast(2) / (exponential(size + size) + broadcast(1));
  return select(size < broadcast(0.63f), near, bits(bits(far) | (bits(x) & whole(INT32_MIN))));
}

TILTWALK_INLINE Vec sigmoid(Vec x) { return broadcast(1) / (broadcast(1) + exponential(broadcast(0) - x)); }

TILTWALK_INLINE Vec gelu(Vec x) {
  const Vec inner = broadcast(0.797884561f) * (x + broadcast(0.044715f) * x * x * x);
  return broadcast(0.5f) * x * (broadcast(1) + tangent(inner));
}

}  // namespace TILTWALK_TARGET
}  // namespace tiltwalk

#endif  // TILTWALK_FUNCTIONS_H_
