/** Position encodings in the order in which they are drawn. */

import { type Matrix, matrix } from './matrix';

/** Return the dimension in each column: in order, or all sines before all cosines. */
export function columnOrder(width: number, order: 'interleaved' | 'halves'): number[] {
  const all = Array.from({ length: width }, (_, i) => i);
  return order === 'interleaved' ? all : [...all.filter((i) => i % 2 === 0), ...all.filter((i) => i % 2 === 1)];
}

export function reorder(codes: number[][], columns: number[]): Matrix {
  const result = matrix(codes.length, columns.length);
  codes.forEach((code, i) => columns.forEach((column, j) => (result.values[i * columns.length + j] = code[column])));
  return result;
}

/** Combine embeddings and encodings by addition or by concatenation. */
export function join(embeddings: number[][], codes: number[][], mode: 'add' | 'concat'): number[][] {
  const count = Math.min(embeddings.length, codes.length);
  return Array.from({ length: count }, (_, i) =>
    mode === 'add' ? embeddings[i].map((value, j) => value + codes[i][j]) : [...embeddings[i], ...codes[i]],
  );
}

/** Return the label of a position: one number in a sentence, several on a grid. */
export function positionLabel(position: number[]): string {
  return position.join(', ');
}
