// The product of matrices in WebAssembly, four numbers at a time: the one thing here that JavaScript is too slow for.
// Assembled in place.
"use strict";

// y[r, i] = sum over k of W[i, k] x[r, k]; m and n are multiples of 4. The arguments are W, x, y (addresses), rows,
// m, n.
function assembled() {
  const [W, X, Y, ROWS, M, N, ROW, I, R, P, Q, S, T, K, END, OUT] = Array(16).keys(), SUMS = [16, 17, 18, 19], V = 20;
  const number = n => { const bytes = []; do { bytes.push((n & 127) | (n > 127 ? 128 : 0)); n >>>= 7; } while (n);
    return bytes; };
  const get = i => [0x20, i], set = i => [0x21, i], tee = i => [0x22, i], add = [0x6a], multiply = [0x6c];
  const whole = n => [0x41, n]; // below 64
  const step = (i, n) => [...get(i), ...whole(n), ...add, ...tee(i)];
  const load = [0xfd, 0x00, 2, 0], times = [0xfd, 0xe6, 0x01], plus = [0xfd, 0xe4, 0x01],
    zero = [0xfd, 0x0c, ...Array(16).fill(0)];
  const lane = i => [0xfd, 0x1f, i], sum = [0x92];
  // again while the number left by `body` is not 0
  const loop = body => [0x03, 0x40, ...body, 0x0d, 0, 0x0b], less = [0x49];
  const pointers = [P, Q, S, T];
  const dot = loop([
    ...get(K), ...load, ...set(V),
    ...pointers.flatMap((p, i) => [...get(SUMS[i]), ...get(V), ...get(p), ...load, ...times, ...plus, ...set(SUMS[i])]),
    ...pointers.flatMap(p => [...get(p), ...whole(16), ...add, ...set(p)]),
    ...step(K, 16), ...get(END), ...less]);
  const row = loop([
    ...SUMS.flatMap(s => [...zero, ...set(s)]),
    ...get(W), ...set(P),
    ...[[Q, P], [S, Q], [T, S]].flatMap(([to, from]) => [...get(from), ...get(ROW), ...add, ...set(to)]),
    ...get(X), ...get(R), ...get(ROW), ...multiply, ...add, ...tee(K), ...get(ROW), ...add, ...set(END),
    ...dot,
    ...get(Y), ...get(R), ...get(M), ...multiply, ...get(I), ...add, ...whole(4), ...multiply, ...add, ...set(OUT),
    ...SUMS.flatMap((s, i) => [
      ...get(OUT), ...[0, 1, 2, 3].flatMap(l => [...get(s), ...lane(l), ...(l ? sum : [])]), 0x38, 2, 4 * i]),
    ...step(R, 1), ...get(ROWS), ...less]);
  const body = [
    ...get(N), ...whole(4), ...multiply, ...set(ROW),
    ...loop([
      ...whole(0), ...set(R), ...row,
      ...get(W), ...get(ROW), ...whole(4), ...multiply, ...add, ...set(W),
      ...step(I, 4), ...get(M), ...less]),
    0x0b];
  const sized = bytes => [...number(bytes.length), ...bytes], section = (id, bytes) => [id, ...sized(bytes)],
    I32 = 0x7f, V128 = 0x7b;
  const text = name => sized([...new TextEncoder().encode(name)]);
  return new Uint8Array([
    0, 0x61, 0x73, 0x6d, 1, 0, 0, 0,
    ...section(1, [1, 0x60, 6, ...Array(6).fill(I32), 0]), // one type: six whole numbers, no result
    ...section(2, [1, ...text("env"), ...text("memory"), 2, 0, 1]),
    ...section(3, [1, 0]),
    ...section(7, [1, ...text("product"), 0, 0]),
    ...section(10, [1, ...sized([2, 10, I32, 5, V128, ...body])])]);
}

// Moves the matrices into WebAssembly's memory and gives a `product` that finds them there; null where the browser
// has none.
function fastProduct(tensors, most = 1 << 21) { // numbers in x or y
  const matrices = Object.values(tensors).filter(({ shape }) => shape.length === 2 && shape[1] % 4 === 0
    && shape[0] >= 4);
  const aligned = at => (at + 15) & ~15, total = matrices.reduce((sum, { data }) => aligned(sum + data.byteLength), 0);
  let memory, run;
  try {
    memory = new WebAssembly.Memory({ initial: Math.ceil((total + 8 * most + 64) / 65536) });
    run = new WebAssembly.Instance(new WebAssembly.Module(assembled()), { env: { memory } }).exports.product;
  } catch { return null; }
  let at = 0;
  for (const matrix of matrices) {
    const data = new Float32Array(memory.buffer, at, matrix.data.length);
    data.set(matrix.data);
    Object.assign(matrix, { data, at });
    at = aligned(at + data.byteLength);
  }
  const X = new Float32Array(memory.buffer, at, most), Y = new Float32Array(memory.buffer, at + 4 * most, most);
  return (matrix, x, rows) => {
    const [m, n] = matrix.shape;
    if (matrix.at === undefined || m % 4 || rows * Math.max(m, n) > most) return product(matrix, x, rows);
    X.set(x);
    run(matrix.at, X.byteOffset, Y.byteOffset, rows, m, n);
    return Y.slice(0, rows * m);
  };
}
