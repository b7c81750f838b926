// Dropout, GELU and causal attention of small models on one core, in float32.
//
// What torch spends its time on at these sizes is drawing random numbers one by one and passing over memory several
// times. Here a mask is a hash of (seed, position), a head's weights are made, dropped and used row by row, and GELU
// drops what it makes. Plain C interface: no header of torch, so that it compiles in seconds. GCC and Clang split the
// vectors where the processor's are narrower.

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

// Share of a standard normal below h, and its density there. The tail is formula 7.1.26 of Abramowitz and Stegun
// (absolute error 7.5e-8), which shares its exponential with the density.
inline void normal_of(Vec h, Vec* below, Vec* density) {
  const Vec e = exp_of(-0.5f * h * h), size = pick(h < 0.0f, -h, h);
  const Vec t = 1.0f / (size * 0.23164189f + 1.0f);
  Vec p = all(0.5307027145f);
  p = p * t - 0.7265760135f;
  p = p * t + 0.7107068705f;
  p = p * t - 0.142248368f;
  p = p * t + 0.1274147960f;
  const Vec tail = p * t * e;
  *below = pick(h < 0.0f, tail, 1.0f - tail);
  *density = e * 0.398942280f;
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
  int32_t causal;      // tokens of a time step, of which none sees a later one; 0: all see all
  uint32_t threshold;  // an element stays where its hash is at least this
  float keep_scale;    // 1 / (1 - dropout)
  uint64_t seed;
};

inline int64_t padded(int64_t tokens) { return (tokens + LANES - 1) / LANES * LANES; }

constexpr int ROWS = 8;  // rows of weights come in multiples of it
#ifdef __AVX512F__
constexpr int GROUP = 8;  // queries worked on together: as many sums as hide the time that an addition takes
#else
constexpr int GROUP = 4;  // more would not fit in the registers
#endif

// Rows of one head, tokens x D, from packed rows of `width` floats: as D x tokens, 0 beyond tokens.
template <int D>
void transpose(const float* from, int64_t width, int64_t tokens, int64_t pad, float* to) {
  std::memset(to, 0, sizeof(float) * D * pad);
  for (int64_t t = 0; t < tokens; ++t)
    for (int c = 0; c < D; ++c) to[c * pad + t] = from[t * width + c];
}

// The same rows one after the other.
template <int D>
void gather(const float* from, int64_t width, int64_t tokens, float* to) {
  for (int64_t t = 0; t < tokens; ++t) std::memcpy(to + t * D, from + t * width, sizeof(float) * D);
}

// out[r][j] = sum_c rows[r][c] columns[c][j], for j < end, a multiple of LANES, and GROUP rows of `pad` floats.
template <int D>
inline void rows_times(const float rows[GROUP][D], const float* columns, int64_t pad, int64_t end, float* out) {
  for (int64_t j = 0; j < end; j += LANES) {
    Vec sums[GROUP] = {};
    for (int k = 0; k < D; ++k) {
      const Vec column = load(columns + k * pad + j);
#pragma GCC unroll 8
      for (int r = 0; r < GROUP; ++r) sums[r] += rows[r][k] * column;
    }
#pragma GCC unroll 8
    for (int r = 0; r < GROUP; ++r) store(out + r * pad + j, sums[r]);
  }
}

// Heads of width 8 fill half a vector.
template <bool NARROW>
struct PartOf { typedef Vec Type; };
template <>
struct PartOf<true> { typedef Half Type; };

// out[r][c] = sum_j weights[r][j] rows[j][c], for j < n, and GROUP rows of weights.
template <int D>
inline void weighted_sums(const float* weights, int64_t pad, const float* rows, int64_t n, float* const out[GROUP]) {
  typedef typename PartOf<(D < LANES)>::Type Part;
  constexpr int SIZE = sizeof(Part) / sizeof(float);
  for (int part = 0; part < D; part += SIZE) {
    Part sums[GROUP] = {};
    for (int64_t j = 0; j < n; ++j) {
      Part row;
      std::memcpy(&row, rows + j * D + part, sizeof row);
#pragma GCC unroll 8
      for (int r = 0; r < GROUP; ++r) sums[r] += weights[r * pad + j] * row;
    }
#pragma GCC unroll 8
    for (int r = 0; r < GROUP; ++r) std::memcpy(out[r] + part, &sums[r], sizeof sums[r]);
  }
}

// columns[k][j] += sum_r rows[r][k] weights[r][j], for j < end, and GROUP rows.
template <int D>
inline void add_outer(const float rows[GROUP][D], const float* weights, int64_t pad, int64_t end, float* columns) {
  for (int64_t j = 0; j < end; j += LANES) {
    Vec mine[GROUP];
#pragma GCC unroll 8
    for (int r = 0; r < GROUP; ++r) mine[r] = load(weights + r * pad + j);
    for (int k = 0; k < D; ++k) {
      float* at = columns + k * pad + j;
      Vec even = load(at), odd{};
#pragma GCC unroll 8
      for (int r = 0; r < GROUP; r += 2) {
        even += rows[r][k] * mine[r];
        odd += rows[r + 1][k] * mine[r + 1];
      }
      store(at, even + odd);
    }
  }
}

// Softmax of a row in place, over j < n; dropped weights get a minus sign. `kept` gets the weights that mix values.
inline void soften(float* row, float* kept, int64_t n, int64_t end, uint32_t at, const Sizes& s) {
  for (int64_t j = n / LANES * LANES; j < end; j += LANES)
    store(row + j, pick(counting() + (int32_t)j < (int32_t)n, load(row + j), all(-3.0e38f)));
  Vec highest = all(-3.0e38f);
  for (int64_t j = 0; j < end; j += LANES) {
    const Vec v = load(row + j);
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

// From the gradient of the mixing weights (in `change`) that of the scores, in place; `mixing` gets the weights.
inline void soften_back(const float* row, int64_t end, const Sizes& s, float* change, float* mixing) {
  Vec inner{};
  for (int64_t j = 0; j < end; j += LANES) {
    const Vec mixed = pick(load(row + j) < 0.0f, all(0), load(row + j) * s.keep_scale);
    store(mixing + j, mixed);
    inner += mixed * load(change + j);
  }
  const float centre = sum(inner);
  for (int64_t j = 0; j < end; j += LANES) {
    const Vec w = load(row + j), p = pick(w < 0.0f, -w, w);
    store(change + j, load(mixing + j) * load(change + j) - p * centre);
  }
}

// One head: where its rows are, and what is made of them.
struct Head {
  const float *q, *k, *v;
  int64_t width, index;  // floats between rows of q, k and v; number of the head in the batch
};

// GROUP rows of floats, `width` apart, from row i; those beyond the last are 0.
template <int D>
inline void group_rows(const float* from, int64_t width, int64_t i, int64_t tokens, float scale, float to[GROUP][D]) {
  for (int r = 0; r < GROUP; ++r)
    for (int k = 0; k < D; ++k) to[r][k] = i + r < tokens ? from[(i + r) * width + k] * scale : 0.0f;
}

// Where GROUP rows are written; those beyond the last go nowhere.
inline void group_places(float* first, int64_t width, int64_t i, int64_t tokens, float* nowhere, float* to[GROUP]) {
  for (int r = 0; r < GROUP; ++r) to[r] = i + r < tokens ? first + (i + r) * width : nowhere;
}

// How many keys the query of token i sees.
inline int64_t seen(const Sizes& s, int64_t i) {
  if (!s.causal) return s.tokens;
  const int64_t n = (i / s.causal + 1) * s.causal;
  return n < s.tokens ? n : s.tokens;
}

template <int D>
void forward_head(const Head& head, const Sizes& s, float* weights, float* out, int64_t out_width, float* work) {
  const int64_t pad = padded(s.tokens);
  float *kt = work, *vr = kt + D * pad, *kept = vr + D * pad, *nowhere = kept + GROUP * pad;
  transpose<D>(head.k, head.width, s.tokens, pad, kt);
  gather<D>(head.v, head.width, s.tokens, vr);
  float queries[GROUP][D];
  float* places[GROUP];
  for (int64_t i = 0; i < s.tokens; i += GROUP) {
    const int64_t most = seen(s, i + GROUP - 1), end = padded(most);
    float* rows = weights + i * pad;
    group_rows<D>(head.q, head.width, i, s.tokens, 1.0f / __builtin_sqrtf((float)D), queries);
    rows_times<D>(queries, kt, pad, end, rows);
    for (int r = 0; r < GROUP; ++r) {
      soften(rows + r * pad, kept + r * pad, seen(s, i + r), end, (uint32_t)((head.index * s.tokens + i + r) * pad), s);
    }
    group_places(out, out_width, i, s.tokens, nowhere, places);
    weighted_sums<D>(kept, pad, vr, most, places);
  }
}

template <int D>
void backward_head(const Head& head, const Sizes& s, const float* weights, const float* grad, int64_t grad_width,
                   float* dq, float* dk, float* dv, float* work) {
  const int64_t pad = padded(s.tokens);
  float *vt = work, *kr = vt + D * pad, *dkt = kr + D * pad, *dvt = dkt + D * pad;
  float *changes = dvt + D * pad, *mixing = changes + GROUP * pad, *nowhere = mixing + GROUP * pad;
  transpose<D>(head.v, head.width, s.tokens, pad, vt);
  gather<D>(head.k, head.width, s.tokens, kr);
  std::memset(dkt, 0, sizeof(float) * 2 * D * pad);
  float queries[GROUP][D], grads[GROUP][D];
  float* places[GROUP];
  for (int64_t i = 0; i < s.tokens; i += GROUP) {
    const int64_t most = seen(s, i + GROUP - 1), end = padded(most);
    group_rows<D>(head.q, head.width, i, s.tokens, 1.0f / __builtin_sqrtf((float)D), queries);
    group_rows<D>(grad, grad_width, i, s.tokens, 1.0f, grads);
    rows_times<D>(grads, vt, pad, end, changes);
    for (int r = 0; r < GROUP; ++r) soften_back(weights + (i + r) * pad, end, s, changes + r * pad, mixing + r * pad);
    group_places(dq, head.width, i, s.tokens, nowhere, places);
    weighted_sums<D>(changes, pad, kr, most, places);
    add_outer<D>(queries, changes, pad, end, dkt);
    add_outer<D>(grads, mixing, pad, end, dvt);
    for (int r = 0; r < GROUP; ++r)
      for (int k = 0; k < D; ++k) places[r][k] *= 1.0f / __builtin_sqrtf((float)D);
  }
  for (int64_t t = 0; t < s.tokens; ++t)
    for (int c = 0; c < D; ++c) {
      dk[t * head.width + c] = dkt[c * pad + t];
      dv[t * head.width + c] = dvt[c * pad + t];
    }
}

template <int D>
Head head_of(const float* packed, const Sizes& s, int64_t b, int64_t h) {
  const int64_t d = s.heads * D;
  const float* q = packed + b * s.tokens * 3 * d + h * D;
  return {q, q + d, q + 2 * d, 3 * d, b * s.heads + h};
}

template <int D>
void forward(const float* packed, const Sizes& s, float* weights, float* out, float* work) {
  const int64_t d = s.heads * D, each = (s.tokens + ROWS - 1) / ROWS * ROWS * padded(s.tokens);
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t h = 0; h < s.heads; ++h) {
      const Head head = head_of<D>(packed, s, b, h);
      forward_head<D>(head, s, weights + head.index * each, out + b * s.tokens * d + h * D, d, work);
    }
}

template <int D>
void backward(const float* packed, const Sizes& s, const float* weights, const float* grad, float* out, float* work) {
  const int64_t d = s.heads * D, each = (s.tokens + ROWS - 1) / ROWS * ROWS * padded(s.tokens);
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t h = 0; h < s.heads; ++h) {
      const Head head = head_of<D>(packed, s, b, h);
      float* dq = out + (head.q - packed);
      backward_head<D>(head, s, weights + head.index * each, grad + b * s.tokens * d + h * D, d, dq, dq + d,
                       dq + 2 * d, work);
    }
}

// Calls `work` on vectors of the inputs, at every LANES positions, and stores what it leaves in their places; the last
// positions go through buffers of their own.
template <int N, class Work>
inline void in_vectors(int64_t count, const float* const (&from)[N], float* const (&to)[N], Work work) {
  Vec v[N];
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES) {
    for (int k = 0; k < N; ++k) v[k] = load(from[k] + i);
    work(i, v);
    for (int k = 0; k < N; ++k) store(to[k] + i, v[k]);
  }
  if (i == count) return;
  const size_t rest = sizeof(float) * (count - i);
  for (int k = 0; k < N; ++k) {
    v[k] = all(0);
    std::memcpy(&v[k], from[k] + i, rest);
  }
  work(i, v);
  for (int k = 0; k < N; ++k) std::memcpy(to[k] + i, &v[k], rest);
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

// to[i] = from[i] / (1 - dropout) where position at + i stays, else 0. Its own gradient.
void dropout(const float* from, int64_t count, int64_t at, uint32_t threshold, float keep_scale, uint64_t seed,
             float* to) {
  in_vectors(count, {from}, {to}, [&](int64_t i, Vec* v) {
    v[0] = pick(stays((uint32_t)(at + i), seed, threshold), v[0] * keep_scale, all(0));
  });
}

// The same of GELU(from[i]).
void gelu_dropout(const float* from, int64_t count, int64_t at, uint32_t threshold, float keep_scale, uint64_t seed,
                  float* to) {
  in_vectors(count, {from}, {to}, [&](int64_t i, Vec* v) {
    Vec below, density;
    normal_of(v[0], &below, &density);
    v[0] = pick(stays((uint32_t)(at + i), seed, threshold), v[0] * below * keep_scale, all(0));
  });
}

// Makes the output of gelu_dropout again, and turns its gradient in `change` into that of `from`.
void gelu_dropout_back(const float* from, int64_t count, int64_t at, uint32_t threshold, float keep_scale,
                       uint64_t seed, float* change, float* to) {
  in_vectors(count, {change, from}, {change, to}, [&](int64_t i, Vec* v) {
    Vec below, density;
    normal_of(v[1], &below, &density);
    const Int stay = stays((uint32_t)(at + i), seed, threshold);
    v[0] = pick(stay, v[0] * (below + v[1] * density) * keep_scale, all(0));
    v[1] = pick(stay, v[1] * below * keep_scale, all(0));
  });
}
}
