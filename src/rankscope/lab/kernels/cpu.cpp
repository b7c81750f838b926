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
  int32_t causal;      // tokens of a time step, of which none sees a later one; 0: all see all
  uint32_t threshold;  // an element stays where its hash is at least this
  float keep_scale;    // 1 / (1 - dropout)
  uint64_t seed;
};

inline int64_t padded(int64_t tokens) { return (tokens + LANES - 1) / LANES * LANES; }

constexpr int GROUP = 4;  // queries worked on together

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

// out[r][j] = sum_c rows[r][c] columns[c][j], for j < end, a multiple of LANES, and four rows of `pad` floats.
template <int D>
inline void rows_times(const float rows[GROUP][D], const float* columns, int64_t pad, int64_t end, float* out) {
  for (int64_t j = 0; j < end; j += LANES) {
    Vec a{}, b{}, c{}, d{};
    for (int k = 0; k < D; ++k) {
      const Vec column = load(columns + k * pad + j);
      a += rows[0][k] * column;
      b += rows[1][k] * column;
      c += rows[2][k] * column;
      d += rows[3][k] * column;
    }
    store(out + j, a);
    store(out + pad + j, b);
    store(out + 2 * pad + j, c);
    store(out + 3 * pad + j, d);
  }
}

// Heads of width 8 fill half a vector.
template <bool NARROW>
struct PartOf { typedef Vec Type; };
template <>
struct PartOf<true> { typedef Half Type; };

// out[r][c] = sum_j weights[r][j] rows[j][c], for j < n, and four rows of weights.
template <int D>
inline void weighted_sums(const float* weights, int64_t pad, const float* rows, int64_t n, float* const out[GROUP]) {
  typedef typename PartOf<(D < LANES)>::Type Part;
  constexpr int SIZE = sizeof(Part) / sizeof(float);
  for (int part = 0; part < D; part += SIZE) {
    Part a{}, b{}, c{}, d{};
    for (int64_t j = 0; j < n; ++j) {
      Part row;
      std::memcpy(&row, rows + j * D + part, sizeof row);
      a += weights[j] * row;
      b += weights[pad + j] * row;
      c += weights[2 * pad + j] * row;
      d += weights[3 * pad + j] * row;
    }
    std::memcpy(out[0] + part, &a, sizeof a);
    std::memcpy(out[1] + part, &b, sizeof b);
    std::memcpy(out[2] + part, &c, sizeof c);
    std::memcpy(out[3] + part, &d, sizeof d);
  }
}

// columns[k][j] += sum_r rows[r][k] weights[r][j], for j < end, and four rows.
template <int D>
inline void add_outer(const float rows[GROUP][D], const float* weights, int64_t pad, int64_t end, float* columns) {
  for (int64_t j = 0; j < end; j += LANES) {
    const Vec a = load(weights + j), b = load(weights + pad + j);
    const Vec c = load(weights + 2 * pad + j), d = load(weights + 3 * pad + j);
    for (int k = 0; k < D; ++k) {
      float* at = columns + k * pad + j;
      store(at, load(at) + (rows[0][k] * a + rows[1][k] * b) + (rows[2][k] * c + rows[3][k] * d));
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

// Four rows of floats, `width` apart, from row i; those beyond the last are 0.
template <int D>
inline void four_rows(const float* from, int64_t width, int64_t i, int64_t tokens, float scale, float to[GROUP][D]) {
  for (int r = 0; r < GROUP; ++r)
    for (int k = 0; k < D; ++k) to[r][k] = i + r < tokens ? from[(i + r) * width + k] * scale : 0.0f;
}

// Where four rows are written; those beyond the last go nowhere.
inline void four_places(float* first, int64_t width, int64_t i, int64_t tokens, float* nowhere, float* to[GROUP]) {
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
    four_rows<D>(head.q, head.width, i, s.tokens, 1.0f / __builtin_sqrtf((float)D), queries);
    rows_times<D>(queries, kt, pad, end, rows);
    for (int r = 0; r < GROUP; ++r) {
      soften(rows + r * pad, kept + r * pad, seen(s, i + r), end, (uint32_t)((head.index * s.tokens + i + r) * pad), s);
    }
    four_places(out, out_width, i, s.tokens, nowhere, places);
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
    four_rows<D>(head.q, head.width, i, s.tokens, 1.0f / __builtin_sqrtf((float)D), queries);
    four_rows<D>(grad, grad_width, i, s.tokens, 1.0f, grads);
    rows_times<D>(grads, vt, pad, end, changes);
    for (int r = 0; r < GROUP; ++r) soften_back(weights + (i + r) * pad, end, s, changes + r * pad, mixing + r * pad);
    four_places(dq, head.width, i, s.tokens, nowhere, places);
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
  const int64_t d = s.heads * D, each = (s.tokens + GROUP - 1) / GROUP * GROUP * padded(s.tokens);
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t h = 0; h < s.heads; ++h) {
      const Head head = head_of<D>(packed, s, b, h);
      forward_head<D>(head, s, weights + head.index * each, out + b * s.tokens * d + h * D, d, work);
    }
}

template <int D>
void backward(const float* packed, const Sizes& s, const float* weights, const float* grad, float* out, float* work) {
  const int64_t d = s.heads * D, each = (s.tokens + GROUP - 1) / GROUP * GROUP * padded(s.tokens);
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t h = 0; h < s.heads; ++h) {
      const Head head = head_of<D>(packed, s, b, h);
      float* dq = out + (head.q - packed);
      backward_head<D>(head, s, weights + head.index * each, grad + b * s.tokens * d + h * D, d, dq, dq + d,
                       dq + 2 * d, work);
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
