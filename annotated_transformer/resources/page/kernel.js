// What both models share: the functions of kernel.c, the live page's products by them, and random numbers. `KERNEL` is
// kernel.wasm in base64.
"use strict";
const KERNEL_PAGE = 65536; // bytes at the beginning of a memory that are the kernel's own

function kernel(memory) {
  const binary = Uint8Array.from(atob(KERNEL), letter => letter.charCodeAt(0));
  return new WebAssembly.Instance(new WebAssembly.Module(binary), { env: { memory, log: Math.log } }).exports;
}

// Numbers from 0 to below 1, the same for the same seed.
function randoms(seed) {
  let s = (seed * 2654435761 + 12345) | 0;
  return () => { s ^= s << 13; s ^= s >>> 17; s ^= s << 5; return (s >>> 0) / 4294967296; };
}

// Moves the matrices into WebAssembly's memory and gives a `product` that finds them there; null where the browser
// has none.
function fastProduct(tensors, most = 1 << 21) { // numbers in x or y
  const matrices = Object.values(tensors).filter(({ shape }) => shape.length === 2 && shape[1] % 4 === 0
    && shape[0] >= 4);
  const aligned = at => (at + 15) & ~15, total = matrices.reduce((sum, { data }) => aligned(sum + data.byteLength), 0);
  let memory, run;
  try {
    memory = new WebAssembly.Memory({ initial: Math.ceil((KERNEL_PAGE + total + 8 * most + 64) / 65536) });
    run = kernel(memory).product_of_rows;
  } catch { return null; }
  let at = KERNEL_PAGE;
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
