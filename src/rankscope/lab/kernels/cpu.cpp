// Dropout and causal attention of small models on one core, in float32.
//
// What torch spends its time on at these sizes is drawing random numbers one by one and writing attention weights to
// memory several times. Here a mask is a hash of (seed, position), and a head's weights are made, dropped and used row
// by row. Plain C interface: no header of torch, so that it compiles in seconds. GCC and Clang split the vectors where
// the processor's are narrower.

#include <cstdint>
#include <cstring>

namespace {

constexpr int LANES = 16;
typedef float Vec __attribute__((vector_size(64)));
typedef float Half __attribute__((vector_size(32)));
typedef float Quarter __attribute__((vector_size(16)));
typedef int32_t Int __attribute__((vector_size(64)));
typedef uint32_t Bits __attribute__((vector_size(64)));

inline Vec load(const float* at) { Vec v; std::memcpy(&v, at, sizeof v); return v; }
inline void store(float* at, Vec v) { std::memcpy(at, &v, sizeof v); }
inline Vec all(float x) { return Vec{} + x; }
inline Vec pick(Int where, Vec yes, Vec no) { return where ? yes : no; }

inline Int counting() { return Int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}; }

inline float sum(Vec v) {
  Half half, other;
  std::memcpy(&half, &v, sizeof half);
  std::memcpy(&other, (const char*)&v + sizeof half, sizeof other);
  half += other;
  Quarter quarter, rest;
  std::memcpy(&quarter, &half, sizeof quarter);
  std::memcpy(&rest, (const char*)&half + sizeof quarter, sizeof rest);
  quarter += rest;
  return (quarter[0] + quarter[1]) + (quarter[2] + quarter[3]);
}

// Relative error below 2e-7 for x <= 0; 0 below -87.
inline Vec exp_of(Vec x) {
  const Int tiny = x < -87.0f;
  x = pick(tiny, all(0), x);
  const Vec scaled = x * 1.44269504f;
  const Int whole = __builtin_convertvector(scaled - 0.5f, Int);  // rounds to nearest for x <= 0
  const Vec n = __builtin_convertvector(whole, Vec);
  const Vec r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  Vec p = all(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const Int power = (whole + 127) << 23;
  Vec scale;
  std::memcpy(&scale, &power, sizeof scale);
  return pick(tiny, all(0), p * scale);
}

// A uniform 32-bit number per position: two rounds of multiply and shift over a keyed counter.
inline Bits hash_of(Bits at, uint32_t key_low, uint32_t key_high) {
  Bits h = at ^ key_low;
  h ^= h >> 16;
  h *= 0x7feb352dU;
  h ^= h >> 15;
  h += key_high;
  h *= 0x846ca68bU;
  h ^= h >> 16;
  h *= 0x9e3779b1U;
  h ^= h >> 15;
  return h;
}

// All bits set where the element stays.
inline Int stays(uint32_t at, uint64_t seed, uint32_t threshold) {
  const Bits where = (Bits)counting() + at;
  const Bits h = hash_of(where, (uint32_t)seed, (uint32_t)(seed >> 32));
  return (Int)(h >= threshold);
}

struct Sizes {
  int64_t batch, tokens, heads;
  int32_t causal;
  uint32_t threshold;  // an element stays where its hash is at least this
  float keep_scale;    // 1 / (1 - dropout)
  uint64_t seed;
};

inline int64_t padded(int64_t tokens) { return (tokens + LANES - 1) / LANES * LANES; }

// Rows of one head, tokens x D, from a packed row of `width` floats, as D x tokens; what lies beyond tokens is 0.
template <int D>
void transpose(const float* from, int64_t width, int64_t tokens, int64_t pad, float* to) {
  std::memset(to, 0, sizeof(float) * D * pad);
  for (int64_t t = 0; t < tokens; ++t)
    for (int c = 0; c < D; ++c) to[c * pad + t] = from[t * width + c];
}

// out[j] = sum_c row[c] columns[c][j], for COUNT vectors.
template <int D, int COUNT>
inline void some_times(const float* row, const float* columns, int64_t pad, float* out) {
  Vec acc[COUNT] = {};
#pragma GCC unroll 64
  for (int c = 0; c < D; ++c) {
    const Vec r = all(row[c]);
#pragma GCC unroll 8
    for (int k = 0; k < COUNT; ++k) acc[k] += r * load(columns + c * pad + k * LANES);
  }
#pragma GCC unroll 8
  for (int k = 0; k < COUNT; ++k) store(out + k * LANES, acc[k]);
}

// The same for j < n, rounded up to whole vectors.
template <int D>
inline void row_times(const float* row, const float* columns, int64_t pad, int64_t n, float* out) {
  int64_t j = 0;
  for (; j + 3 * LANES < n; j += 4 * LANES) some_times<D, 4>(row, columns + j, pad, out + j);
  if (j + LANES < n) some_times<D, 2>(row, columns + j, pad, out + j), j += 2 * LANES;
  if (j < n) some_times<D, 1>(row, columns + j, pad, out + j);
}

// out[c] = sum_j weights[j] columns[c][j], for j < n; weights beyond n are 0 up to a whole vector.
template <int D>
inline void weighted_sum(const float* weights, const float* columns, int64_t pad, int64_t n, float* out) {
  for (int c = 0; c < D; c += 8) {
    Vec acc[8] = {};
    for (int64_t j = 0; j < n; j += LANES) {
      const Vec w = load(weights + j);
#pragma GCC unroll 8
      for (int k = 0; k < 8; ++k) acc[k] += w * load(columns + (c + k) * pad + j);
    }
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) out[c + k] = sum(acc[k]);
  }
}

// Softmax of a row in place, over j < n; dropped weights get a minus sign. `kept` gets the weights that mix values.
inline void soften(float* row, float* kept, int64_t n, int64_t end, uint32_t at, const Sizes& s) {
  Vec highest = all(-3.0e38f);
  for (int64_t j = 0; j < end; j += LANES) {
    const Vec v = pick(counting() + (int32_t)j < (int32_t)n, load(row + j), all(-3.0e38f));
    store(row + j, v);
    highest = pick(v > highest, v, highest);
  }
  float top = highest[0];
  for (int i = 1; i < LANES; ++i) top = highest[i] > top ? highest[i] : top;
  Vec total{};
  for (int64_t j = 0; j < end; j += LANES) {
    const Vec e = exp_of(load(row + j) - top);
    store(row + j, e);
    total += e;
  }
  const float inverse = 1.0f / sum(total);
  for (int64_t j = 0; j < end; j += LANES) {
    const Vec p = load(row + j) * inverse;
    if (s.threshold == 0) {
      store(row + j, p);
      store(kept + j, p);
      continue;
    }
    const Int stay = stays(at + (uint32_t)j, s.seed, s.threshold);
    store(row + j, pick(stay, p, -p));
    store(kept + j, pick(stay, p * s.keep_scale, all(0)));
  }
}

template <int D>
void forward_head(const float* q, const float* k, const float* v, int64_t width, const Sizes& s, int64_t head,
                  float* weights, float* out, int64_t out_width, float* work) {
  const int64_t pad = padded(s.tokens);
  float *kt = work, *vt = kt + D * pad, *kept = vt + D * pad;
  transpose<D>(k, width, s.tokens, pad, kt);
  transpose<D>(v, width, s.tokens, pad, vt);
  const float scale = 1.0f / __builtin_sqrtf((float)D);
  for (int64_t i = 0; i < s.tokens; ++i) {
    const int64_t n = s.causal ? i + 1 : s.tokens;
    float* row = weights + i * pad;
    float query[D];
    for (int c = 0; c < D; ++c) query[c] = q[i * width + c] * scale;
    row_times<D>(query, kt, pad, n, row);
    soften(row, kept, n, padded(n), (uint32_t)((head * s.tokens + i) * pad), s);
    weighted_sum<D>(kept, vt, pad, n, out + i * out_width);
  }
}

template <int D>
void backward_head(const float* q, const float* k, const float* v, int64_t width, const Sizes& s,
                   const float* weights, const float* grad, int64_t grad_width, float* dq, float* dk, float* dv,
                   float* work) {
  const int64_t pad = padded(s.tokens);
  float *vt = work, *kt = vt + D * pad, *dkt = kt + D * pad, *dvt = dkt + D * pad;
  float *ds = dvt + D * pad, *kept = ds + pad;
  transpose<D>(v, width, s.tokens, pad, vt);
  transpose<D>(k, width, s.tokens, pad, kt);
  std::memset(dkt, 0, sizeof(float) * D * pad);
  std::memset(dvt, 0, sizeof(float) * D * pad);
  const float scale = 1.0f / __builtin_sqrtf((float)D);
  for (int64_t i = 0; i < s.tokens; ++i) {
    const int64_t n = s.causal ? i + 1 : s.tokens, end = padded(n);
    const float* row = weights + i * pad;
    const float* g = grad + i * grad_width;
    row_times<D>(g, vt, pad, n, ds);
    Vec inner{};
    for (int64_t j = 0; j < end; j += LANES) {
      const Vec w = load(row + j), p = pick(w < 0.0f, -w, w);
      const Vec mixed = pick(w < 0.0f, all(0), p * s.keep_scale);
      store(kept + j, mixed);
      inner += mixed * load(ds + j);
    }
    const float centre = sum(inner);
    float query[D];
    for (int c = 0; c < D; ++c) query[c] = q[i * width + c];
    for (int64_t j = 0; j < end; j += LANES) {
      const Vec w = load(row + j), p = pick(w < 0.0f, -w, w);
      const Vec d = (load(kept + j) * load(ds + j) - p * centre) * scale;
      const Vec mixed = load(kept + j);
      store(ds + j, d);
#pragma GCC unroll 32
      for (int c = 0; c < D; ++c) {
        store(dkt + c * pad + j, load(dkt + c * pad + j) + query[c] * d);
        store(dvt + c * pad + j, load(dvt + c * pad + j) + g[c] * mixed);
      }
    }
    weighted_sum<D>(ds, kt, pad, n, dq + i * width);
  }
  for (int64_t t = 0; t < s.tokens; ++t)
    for (int c = 0; c < D; ++c) {
      dk[t * width + c] = dkt[c * pad + t];
      dv[t * width + c] = dvt[c * pad + t];
    }
}

template <int D>
void forward(const float* packed, const Sizes& s, float* weights, float* out, float* work) {
  const int64_t d = s.heads * D, pad = padded(s.tokens);
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t h = 0; h < s.heads; ++h) {
      const int64_t head = b * s.heads + h;
      const float* q = packed + b * s.tokens * 3 * d + h * D;
      forward_head<D>(q, q + d, q + 2 * d, 3 * d, s, head, weights + head * s.tokens * pad,
                      out + b * s.tokens * d + h * D, d, work);
    }
}

template <int D>
void backward(const float* packed, const Sizes& s, const float* weights, const float* grad, float* out, float* work) {
  const int64_t d = s.heads * D, pad = padded(s.tokens);
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t h = 0; h < s.heads; ++h) {
      const int64_t head = b * s.heads + h, at = b * s.tokens * 3 * d + h * D;
      const float* q = packed + at;
      backward_head<D>(q, q + d, q + 2 * d, 3 * d, s, weights + head * s.tokens * pad,
                       grad + b * s.tokens * d + h * D, d, out + at, out + at + d, out + at + 2 * d, work);
    }
}

}  // namespace

extern "C" {

int attention_forward(const float* packed, int64_t batch, int64_t tokens, int64_t heads, int64_t d_head,
                      int32_t causal, uint32_t threshold, float keep_scale, uint64_t seed, float* weights, float* out,
                      float* work) {
  const Sizes s{batch, tokens, heads, causal, threshold, keep_scale, seed};
  switch (d_head) {
    case 8: forward<8>(packed, s, weights, out, work); return 0;
    case 16: forward<16>(packed, s, weights, out, work); return 0;
    case 32: forward<32>(packed, s, weights, out, work); return 0;
    case 64: forward<64>(packed, s, weights, out, work); return 0;
  }
  return 1;
}

int attention_backward(const float* packed, int64_t batch, int64_t tokens, int64_t heads, int64_t d_head,
                       int32_t causal, uint32_t threshold, float keep_scale, uint64_t seed, const float* weights,
                       const float* grad, float* out, float* work) {
  const Sizes s{batch, tokens, heads, causal, threshold, keep_scale, seed};
  switch (d_head) {
    case 8: backward<8>(packed, s, weights, grad, out, work); return 0;
    case 16: backward<16>(packed, s, weights, grad, out, work); return 0;
    case 32: backward<32>(packed, s, weights, grad, out, work); return 0;
    case 64: backward<64>(packed, s, weights, grad, out, work); return 0;
  }
  return 1;
}

// to[i] = from[i] / (1 - dropout) where i stays, else 0. Its own gradient.
void dropout(const float* from, int64_t count, uint32_t threshold, float keep_scale, uint64_t seed, float* to) {
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES)
    store(to + i, pick(stays((uint32_t)i, seed, threshold), load(from + i) * keep_scale, all(0)));
  if (i < count) {
    const Int stay = stays((uint32_t)i, seed, threshold);
    for (int64_t k = i; k < count; ++k) to[k] = stay[k - i] ? from[k] * keep_scale : 0.0f;
  }
}
}
