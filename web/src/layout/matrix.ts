/** Matrices of attention weights: of one head, averaged over heads, merged from tokens to words. */

import { type Heads, WEIGHT } from '../run';
import type { Word } from '../trace';

export interface Matrix {
  rows: number;
  columns: number;
  values: Float32Array; // row by row
}

export function matrix(rows: number, columns: number): Matrix {
  return { rows, columns, values: new Float32Array(rows * columns) };
}

export function fromRows(rows: number[][]): Matrix {
  const result = matrix(rows.length, rows[0]?.length ?? 0);
  rows.forEach((row, i) => result.values.set(row, i * result.columns));
  return result;
}

/** Return the bytes of one head, without a copy. */
export function headBytes(heads: Heads, layer: number, head: number): Uint8Array {
  const size = heads.nQueries * heads.nKeys;
  const start = (layer * heads.nHeads + head) * size;
  return heads.bytes.subarray(start, start + size);
}

export function headMatrix(heads: Heads, layer: number, head: number): Matrix {
  const bytes = headBytes(heads, layer, head);
  return { rows: heads.nQueries, columns: heads.nKeys, values: Float32Array.from(bytes, (byte) => WEIGHT[byte]) };
}

/** Return the mean over the heads of all layers or of one. */
export function meanMatrix(heads: Heads, layer?: number): Matrix {
  const mean = matrix(heads.nQueries, heads.nKeys);
  let count = 0;
  const layers = layer === undefined ? heads.entropy.map((_, each) => each) : [layer];
  for (const each of layers)
    for (let head = 0; head < heads.nHeads; head++) {
      if (heads.entropy[each][head] === null) continue;
      const bytes = headBytes(heads, each, head);
      for (let i = 0; i < bytes.length; i++) mean.values[i] += WEIGHT[bytes[i]];
      count++;
    }
  for (let i = 0; i < mean.values.length; i++) mean.values[i] /= count || 1;
  return mean;
}

/** Sum the columns of each key word's tokens, and average the rows of each query word's tokens. */
export function merge(tokens: Matrix, queries: Word[], keys: Word[]): Matrix {
  const merged = matrix(queries.length, keys.length);
  const [rowOf, columnOf] = [wordOf(queries, tokens.rows), wordOf(keys, tokens.columns)];
  for (let q = 0; q < tokens.rows; q++) {
    if (rowOf[q] < 0) continue;
    const [factor, start] = [1 / queries[rowOf[q]].places.length, rowOf[q] * keys.length];
    for (let k = 0; k < tokens.columns; k++)
      if (columnOf[k] >= 0) merged.values[start + columnOf[k]] += factor * tokens.values[q * tokens.columns + k];
  }
  return merged;
}

/** Return for each token the index of its word, or -1. */
function wordOf(words: Word[], count: number): Int32Array {
  const indices = new Int32Array(count).fill(-1);
  words.forEach((word, i) => word.places.forEach((token) => (indices[token] = i)));
  return indices;
}

export function at(m: Matrix, row: number, column: number): number {
  return m.values[row * m.columns + column];
}

export function row(m: Matrix, index: number): Float32Array {
  return m.values.subarray(index * m.columns, (index + 1) * m.columns);
}

export function maxAbs(m: Matrix): number {
  let max = 0;
  for (const value of m.values) if (Math.abs(value) > max) max = Math.abs(value);
  return max;
}

/** Return the entropy of each row in nats. */
export function entropies(m: Matrix): number[] {
  return Array.from({ length: m.rows }, (_, i) =>
    row(m, i).reduce((sum, weight) => (weight > 0 ? sum - weight * Math.log(weight) : sum), 0),
  );
}
