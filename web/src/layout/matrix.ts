/** Matrices of weights: taken from a run, averaged over heads, merged from pieces to words. */

import { type Heads, WEIGHT } from '../seen';
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
  const made = matrix(rows.length, rows[0]?.length ?? 0);
  rows.forEach((row, i) => made.values.set(row, i * made.columns));
  return made;
}

/** Gives the bytes of one head without copying them. */
export function headBytes(heads: Heads, layer: number, head: number): Uint8Array {
  const size = heads.nQueries * heads.nKeys;
  const start = (layer * heads.nHeads + head) * size;
  return heads.bytes.subarray(start, start + size);
}

export function headMatrix(heads: Heads, layer: number, head: number): Matrix {
  const bytes = headBytes(heads, layer, head);
  return { rows: heads.nQueries, columns: heads.nKeys, values: Float32Array.from(bytes, (byte) => WEIGHT[byte]) };
}

/** Gives the mean over all heads that there are, of all layers or of one. */
export function meanMatrix(heads: Heads, only?: number): Matrix {
  const mean = matrix(heads.nQueries, heads.nKeys);
  let count = 0;
  const layers = only === undefined ? heads.entropy.map((_, layer) => layer) : [only];
  for (const layer of layers)
    for (let head = 0; head < heads.nHeads; head++) {
      if (heads.entropy[layer][head] === null) continue;
      const bytes = headBytes(heads, layer, head);
      for (let i = 0; i < bytes.length; i++) mean.values[i] += WEIGHT[bytes[i]];
      count++;
    }
  for (let i = 0; i < mean.values.length; i++) mean.values[i] /= count || 1;
  return mean;
}

/** Adds the columns of each key word's pieces, and averages the rows of each query word's. */
export function merge(pieces: Matrix, queries: Word[], keys: Word[]): Matrix {
  const merged = matrix(queries.length, keys.length);
  const [rowOf, columnOf] = [wordOf(queries, pieces.rows), wordOf(keys, pieces.columns)];
  for (let q = 0; q < pieces.rows; q++) {
    if (rowOf[q] < 0) continue;
    const [share, start] = [1 / queries[rowOf[q]].places.length, rowOf[q] * keys.length];
    for (let k = 0; k < pieces.columns; k++)
      if (columnOf[k] >= 0) merged.values[start + columnOf[k]] += share * pieces.values[q * pieces.columns + k];
  }
  return merged;
}

/** Gives for each piece the word that it belongs to, or -1. */
function wordOf(words: Word[], count: number): Int32Array {
  const found = new Int32Array(count).fill(-1);
  words.forEach((word, i) => word.places.forEach((place) => (found[place] = i)));
  return found;
}

export function at(m: Matrix, row: number, column: number): number {
  return m.values[row * m.columns + column];
}

export function row(m: Matrix, index: number): Float32Array {
  return m.values.subarray(index * m.columns, (index + 1) * m.columns);
}

export function largest(m: Matrix): number {
  let found = 0;
  for (const value of m.values) if (Math.abs(value) > found) found = Math.abs(value);
  return found;
}

/** Gives the entropy of each row in nats. */
export function entropies(m: Matrix): number[] {
  return Array.from({ length: m.rows }, (_, i) =>
    row(m, i).reduce((sum, weight) => (weight > 0 ? sum - weight * Math.log(weight) : sum), 0),
  );
}
