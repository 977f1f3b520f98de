// What JavaScript is too slow for, four numbers at a time: the arithmetic of both pages. Made into kernel.wasm by
//
//   clang --target=wasm32 -O3 -msimd128 -ffreestanding -nostdlib -Wl,--no-entry,--import-memory,--strip-all \
//     -Wl,-z,stack-size=1024,--stack-first -o kernel.wasm kernel.c
//
// with clang and lld 14.0.6. Matrices lie in rows, without padding where no stride is given. What has a gradient adds
// it (dx += ...), since a value may be used in several places.
#include <wasm_simd128.h>

typedef v128_t four; // four floats
#define EXPORT(name) __attribute__((export_name(#name))) name
#define INLINE static inline __attribute__((always_inline))
#define load(p) wasm_v128_load(p)
#define store(p, x) wasm_v128_store(p, x)
#define splat(x) wasm_f32x4_splat(x)
#define plus(x, y) wasm_f32x4_add(x, y)
#define minus(x, y) wasm_f32x4_sub(x, y)
#define times(x, y) wasm_f32x4_mul(x, y)

__attribute__((import_module("env"), import_name("log"))) double log(double); // JavaScript's

INLINE float sum(four x) {
  return wasm_f32x4_extract_lane(x, 0) + wasm_f32x4_extract_lane(x, 1) + wasm_f32x4_extract_lane(x, 2)
    + wasm_f32x4_extract_lane(x, 3);
}
INLINE float most(four x) {
  float a = wasm_f32x4_extract_lane(x, 0), b = wasm_f32x4_extract_lane(x, 1), c = wasm_f32x4_extract_lane(x, 2),
    d = wasm_f32x4_extract_lane(x, 3);
  a = a > b ? a : b; c = c > d ? c : d;
  return a > c ? a : c;
}
// e^x = 2^n e^r with |r| < 0.35, where Taylor's series to the seventh power is exact to a float's last digit.
INLINE four exponential(four x) {
  x = wasm_f32x4_max(x, splat(-87));
  four n = wasm_f32x4_nearest(times(x, splat(1.44269504f)));
  four r = plus(minus(x, times(n, splat(0.693359375f))), times(n, splat(0.000212194440f))), y = splat(1.0f / 5040);
  y = plus(times(y, r), splat(1.0f / 720));
  y = plus(times(y, r), splat(1.0f / 120));
  y = plus(times(y, r), splat(1.0f / 24));
  y = plus(times(y, r), splat(1.0f / 6));
  y = plus(times(y, r), splat(0.5f));
  y = plus(times(y, r), splat(1));
  y = plus(times(y, r), splat(1));
  return wasm_i32x4_add(y, wasm_i32x4_shl(wasm_i32x4_trunc_sat_f32x4(n), 23)); // n added to the exponent
}

// --- products ------------------------------------------------------------------------------------------------------
// `rows` times 4 `width` numbers of C, in registers.
INLINE void tile(const int rows, const int width, const float *A, int ai, int ak, const float *B, int ldb, float *C,
                 int ldc, int k, int add) {
  four c[4][2];
  for (int r = 0; r < rows; r++) for (int w = 0; w < width; w++) c[r][w] = add ? load(C + r * ldc + 4 * w) : splat(0);
  for (; k > 0; k--, A += ak, B += ldb) {
    four b[2];
    for (int w = 0; w < width; w++) b[w] = load(B + 4 * w);
    for (int r = 0; r < rows; r++) {
      four a = splat(A[r * ai]);
      for (int w = 0; w < width; w++) c[r][w] = plus(c[r][w], times(a, b[w]));
    }
  }
  for (int r = 0; r < rows; r++) for (int w = 0; w < width; w++) store(C + r * ldc + 4 * w, c[r][w]);
}
INLINE void strip(const int width, const float *A, const float *B, float *C, int m, int k, int ai, int ak, int ldb,
                  int ldc, int add) {
  int i = 0;
  for (; i + 4 <= m; i += 4) tile(4, width, A + i * ai, ai, ak, B, ldb, C + i * ldc, ldc, k, add);
  for (; i < m; i++) tile(1, width, A + i * ai, ai, ak, B, ldb, C + i * ldc, ldc, k, add);
}
// C[m, n] = A B, or C + A B; n is a multiple of 4. Number (i, k) of A lies at i ai + k ak, so that this serves x W^T (W
// transposed once an update), dY W and dY^T x.
void EXPORT(product)(const float *A, const float *B, float *C, int m, int n, int k, int ai, int ak, int ldb, int ldc,
                     int add) {
  int j = 0;
  for (; j + 8 <= n; j += 8) strip(2, A, B + j, C + j, m, k, ai, ak, ldb, ldc, add);
  for (; j < n; j += 4) strip(1, A, B + j, C + j, m, k, ai, ak, ldb, ldc, add);
}
// y[rows, m] = x W^T for few rows: W [m, n] is read once, as it lies; m and n are multiples of 4.
void EXPORT(product_of_rows)(const float *W, const float *x, float *y, int rows, int m, int n) {
  for (int i = 0; i < m; i += 4, W += 4 * n) for (int r = 0; r < rows; r++) {
    four a = splat(0), b = a, c = a, d = a;
    for (int k = 0; k < n; k += 4) {
      four v = load(x + r * n + k);
      a = plus(a, times(v, load(W + k)));
      b = plus(b, times(v, load(W + n + k)));
      c = plus(c, times(v, load(W + 2 * n + k)));
      d = plus(d, times(v, load(W + 3 * n + k)));
    }
    store(y + r * m + i, wasm_f32x4_make(sum(a), sum(b), sum(c), sum(d)));
  }
}
void EXPORT(transpose)(const float *x, float *y, int rows, int columns) {
  for (int r = 0; r < rows; r++) for (int c = 0; c < columns; c++) y[c * rows + r] = x[r * columns + c];
}

// --- sums and the ReLU; n is a multiple of 4 ------------------------------------------------------------------------
void EXPORT(add)(const float *x, const float *y, float *z, int n) {
  for (int i = 0; i < n; i += 4) store(z + i, plus(load(x + i), load(y + i)));
}
void EXPORT(add_to_rows)(float *y, const float *b, int rows, int n) {
  for (int r = 0; r < rows; r++) for (int i = 0; i < n; i += 4) store(y + r * n + i, plus(load(y + r * n + i), load(b + i)));
}
void EXPORT(add_rows)(float *b, const float *y, int rows, int n) {
  for (int r = 0; r < rows; r++) for (int i = 0; i < n; i += 4) store(b + i, plus(load(b + i), load(y + r * n + i)));
}
void EXPORT(relu)(float *y, int n) {
  for (int i = 0; i < n; i += 4) store(y + i, wasm_f32x4_max(load(y + i), splat(0)));
}
void EXPORT(relu_back)(float *dy, const float *y, int n) { // where y is 0, nothing goes back
  for (int i = 0; i < n; i += 4) store(dy + i, wasm_v128_andnot(load(dy + i), wasm_f32x4_eq(load(y + i), splat(0))));
}

// --- embeddings ----------------------------------------------------------------------------------------------------
// x[r] = root E[ids[r]] + waves[places[r]]
void EXPORT(embed)(const float *E, const int *ids, const float *waves, const int *places, float *x, int rows, int d,
                   float root) {
  for (int r = 0; r < rows; r++) for (int i = 0; i < d; i += 4) store(x + r * d + i,
    plus(times(load(E + ids[r] * d + i), splat(root)), load(waves + places[r] * d + i)));
}
void EXPORT(embed_back)(float *dE, const int *ids, const float *dx, int rows, int d, float root) {
  for (int r = 0; r < rows; r++) for (int i = 0; i < d; i += 4) {
    float *e = dE + ids[r] * d + i;
    store(e, plus(load(e), times(load(dx + r * d + i), splat(root))));
  }
}

// --- attention: the queries of one sentence, all heads --------------------------------------------------------------
// softmax of the first n numbers of a row times scale; the row is filled up with zeros to a multiple of 4.
INLINE void softmax(float *x, int n, float scale) {
  int l = (n + 3) & ~3;
  for (int i = n; i < l; i++) x[i] = -__builtin_inff();
  four top = load(x), total = splat(0);
  for (int i = 4; i < l; i += 4) top = wasm_f32x4_max(top, load(x + i));
  top = splat(most(top));
  for (int i = 0; i < l; i += 4) {
    four e = exponential(times(minus(load(x + i), top), splat(scale)));
    store(x + i, e);
    if (i + 4 == l) for (int j = n; j < l; j++) x[j] = 0;
    total = plus(total, load(x + i));
  }
  four one = splat(1 / sum(total));
  for (int i = 0; i < l; i += 4) store(x + i, times(load(x + i), one));
}
// q [n, d], v [l, d], keys: their columns, `ldk` numbers apart. For each head P [n, l filled up] = softmax(scale q k^T);
// out = P v. `causal`: query i sees keys 0 to i.
void EXPORT(attend)(const float *q, const float *keys, int ldk, const float *v, float *P, float *out, int n, int l, int d,
                    int heads, float scale, int causal) {
  int w = d / heads, ld = (l + 3) & ~3;
  for (int h = 0; h < heads; h++, P += n * ld) {
    product(q + h * w, keys + h * w * ldk, P, n, ld, w, d, 1, ldk, ld, 0);
    for (int i = 0; i < n; i++) {
      int seen = causal ? i + 1 : l;
      softmax(P + i * ld, seen, scale);
      for (int j = (seen + 3) & ~3; j < ld; j += 4) store(P + i * ld + j, splat(0));
    }
    product(P, v + h * w, out + h * w, n, w, l, ld, 1, d, d, 0);
  }
}
// From dout to dq, dk and dv; `values`: the columns of v, as `keys` above; D: room for n times l filled up.
void EXPORT(attend_back)(const float *q, const float *k, const float *values, int ldv, const float *P, float *D,
                         const float *dout, float *dq, float *dk, float *dv, int n, int l, int d, int heads,
                         float scale) {
  int w = d / heads, ld = (l + 3) & ~3;
  for (int h = 0; h < heads; h++, P += n * ld) {
    product(P, dout + h * w, dv + h * w, l, w, n, 1, ld, d, d, 1);
    product(dout + h * w, values + h * w * ldv, D, n, ld, w, d, 1, ldv, ld, 0);
    for (int i = 0; i < n; i++) {
      const float *p = P + i * ld;
      float *e = D + i * ld;
      four dot = splat(0);
      for (int j = 0; j < ld; j += 4) dot = plus(dot, times(load(p + j), load(e + j)));
      dot = splat(sum(dot));
      for (int j = 0; j < ld; j += 4) store(e + j, times(times(load(p + j), minus(load(e + j), dot)), splat(scale)));
    }
    product(D, k + h * w, dq + h * w, n, w, l, ld, 1, d, d, 1);
    product(D, q + h * w, dk + h * w, l, w, n, 1, ld, d, d, 1);
  }
}

// --- layer normalisation; unit: (x - mean) / deviation, one: 1 / deviation of each row ------------------------------
void EXPORT(norm)(const float *x, const float *gain, const float *bias, float *y, float *unit, float *one, int rows,
                  int d) {
  for (int r = 0; r < rows; r++, x += d, y += d, unit += d) {
    four total = splat(0), square = total;
    for (int i = 0; i < d; i += 4) total = plus(total, load(x + i));
    four mean = splat(sum(total) / d);
    for (int i = 0; i < d; i += 4) { four e = minus(load(x + i), mean); square = plus(square, times(e, e)); }
    four scale = splat(one[r] = 1 / __builtin_sqrtf(sum(square) / d + 1e-6f));
    for (int i = 0; i < d; i += 4) {
      four u = times(minus(load(x + i), mean), scale);
      store(unit + i, u);
      store(y + i, plus(times(u, load(gain + i)), load(bias + i)));
    }
  }
}
void EXPORT(norm_back)(const float *dy, const float *gain, const float *unit, const float *one, float *dx, float *dgain,
                       float *dbias, int rows, int d) {
  for (int r = 0; r < rows; r++, dy += d, dx += d, unit += d) {
    four total = splat(0), dot = total;
    for (int i = 0; i < d; i += 4) {
      four e = load(dy + i), u = load(unit + i), t = times(e, load(gain + i));
      store(dgain + i, plus(load(dgain + i), times(e, u)));
      store(dbias + i, plus(load(dbias + i), e));
      total = plus(total, t);
      dot = plus(dot, times(t, u));
    }
    total = splat(sum(total) / d);
    dot = splat(sum(dot) / d);
    for (int i = 0; i < d; i += 4) {
      four t = minus(minus(times(load(dy + i), load(gain + i)), total), times(load(unit + i), dot));
      store(dx + i, plus(load(dx + i), times(t, splat(one[r]))));
    }
  }
}

// --- loss and update -----------------------------------------------------------------------------------------------
// The mean cross-entropy of rows of n logits against `wanted`, of which e is smoothed over all n. right[r]: whether the
// wanted logit is the largest. The mean's gradient goes to `dx`, which may be null.
double EXPORT(cross_entropy)(const float *x, float *dx, const int *wanted, int *right, int rows, int n, float e) {
  double loss = 0;
  for (int r = 0; r < rows; r++, x += n) {
    four top = load(x), all = top, total = splat(0);
    for (int i = 4; i < n; i += 4) { four z = load(x + i); all = plus(all, z); top = wasm_f32x4_max(top, z); }
    float high = most(top), own = x[wanted[r]];
    for (int i = 0; i < n; i += 4) {
      four z = exponential(minus(load(x + i), splat(high)));
      total = plus(total, z);
      if (dx) store(dx + i, z);
    }
    if (dx) {
      four scale = splat(1 / (sum(total) * rows)), q = splat(e / n / rows);
      for (int i = 0; i < n; i += 4) store(dx + i, minus(times(load(dx + i), scale), q));
      dx[wanted[r]] -= (1 - e) / rows;
      dx += n;
    }
    right[r] = own >= high;
    loss += high + log(sum(total)) - (1 - e) * own - e / n * sum(all);
  }
  return loss / rows;
}
// Adam with beta 0.9 and 0.98; `rate` and `scale` correct the means' start.
void EXPORT(adam)(float *w, const float *g, float *mean, float *square, int n, float rate, float scale) {
  for (int i = 0; i < n; i += 4) {
    four e = load(g + i), m = plus(times(load(mean + i), splat(0.9f)), times(e, splat(0.1f)));
    four v = plus(times(load(square + i), splat(0.98f)), times(times(e, e), splat(0.02f)));
    store(mean + i, m);
    store(square + i, v);
    four root = plus(times(wasm_f32x4_sqrt(v), splat(scale)), splat(1e-9f));
    store(w + i, minus(load(w + i), wasm_f32x4_div(times(m, splat(rate)), root)));
  }
}
