/** The codes of positions, put in the order in which they are shown. */

import { type Matrix, matrix } from './matrix';

/** Gives for each column the feature that stands there: as they are, or all sines before all cosines. */
export function columnOrder(width: number, order: 'interleaved' | 'halves'): number[] {
  const all = Array.from({ length: width }, (_, i) => i);
  return order === 'interleaved' ? all : [...all.filter((i) => i % 2 === 0), ...all.filter((i) => i % 2 === 1)];
}

export function reorder(codes: number[][], columns: number[]): Matrix {
  const made = matrix(codes.length, columns.length);
  codes.forEach((code, i) => columns.forEach((column, j) => (made.values[i * columns.length + j] = code[column])));
  return made;
}

/** Joins words and codes: their sum, or both side by side. */
export function join(words: number[][], codes: number[][], how: 'add' | 'concat'): number[][] {
  const count = Math.min(words.length, codes.length);
  return Array.from({ length: count }, (_, i) =>
    how === 'add' ? words[i].map((value, j) => value + codes[i][j]) : [...words[i], ...codes[i]],
  );
}

/** Names a place: one number in a sentence, several on a grid. */
export function placeName(place: number[]): string {
  return place.join(', ');
}
