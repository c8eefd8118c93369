/** Pieces and words as they are shown. */

import type { Side } from '../trace';
import type { Unit } from '../state';

export interface Signs {
  start: string;
  end: string;
}

/** Gives one label for each word or each piece of a side. */
export function labels(side: Side, unit: Unit, signs: Signs): string[] {
  return unit === 'word' ? side.words.map((word) => named(word.text, signs)) : side.pieces.map((p) => named(p, signs));
}

/** Says the signs for start and end in words, and leaves all else as it is. */
export function named(piece: string, signs: Signs): string {
  if (piece === '<s>') return signs.start;
  if (piece === '</s>') return signs.end;
  return piece;
}

export function isSign(piece: string): boolean {
  return piece === '<s>' || piece === '</s>';
}

/** Gives the words of what was said, without the end of the sentence, which is no word. */
export function spokenWords(target: Side) {
  return target.words.filter((word) => !isSign(word.text));
}

/** A number with so many decimals, for columns of them. */
export function fixed(value: number, digits: number): string {
  return value.toFixed(digits).replace('-', '−');
}

/** A number in a few digits, with a true minus sign. */
export function short(value: number | null | undefined, digits = 3): string {
  if (value === null || value === undefined || Number.isNaN(value)) return '–';
  const size = Math.abs(value);
  const text =
    size !== 0 && (size < 0.001 || size >= 1e5) ? value.toExponential(1) : value.toFixed(decimals(size, digits));
  return text.replace('-', '−');
}

function decimals(size: number, digits: number): number {
  return size >= 100 ? Math.max(0, digits - 2) : size >= 10 ? Math.max(0, digits - 1) : digits;
}

/** A probability from its logarithm, as per cent. */
export function percent(logProb: number | null): string {
  if (logProb === null) return '–';
  const share = 100 * Math.exp(logProb);
  return share < 1 ? '< 1 %' : `${Math.round(share)} %`;
}
