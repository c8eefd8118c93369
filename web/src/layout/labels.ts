/** Labels of words and tokens, and numbers as text. */

import type { Side } from '../trace';
import type { Unit } from '../state';

export interface SpecialLabels {
  start: string;
  end: string;
}

/** Return one label for each word or token of a side. */
export function labels(side: Side, unit: Unit, special: SpecialLabels): string[] {
  return unit === 'word'
    ? side.words.map((word) => tokenLabel(word.text, special))
    : side.pieces.map((token) => tokenLabel(token, special));
}

/** Replace the special tokens of start and end by their labels. */
export function tokenLabel(token: string, special: SpecialLabels): string {
  if (token === '<s>') return special.start;
  if (token === '</s>') return special.end;
  return token;
}

export function isSpecial(token: string): boolean {
  return token === '<s>' || token === '</s>';
}

/** Return the words of the output, without special tokens. */
export function outputWords(target: Side) {
  return target.words.filter((word) => !isSpecial(word.text));
}

/** A number with a fixed number of decimals, for tables. */
export function fixed(value: number, digits: number): string {
  return value.toFixed(digits).replace('-', '−');
}

/** A number with few digits and a proper minus sign. */
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

/** A probability in per cent, from its logarithm. */
export function percent(logProb: number | null): string {
  if (logProb === null) return '–';
  const probability = 100 * Math.exp(logProb);
  return probability < 1 ? '< 1 %' : `${Math.round(probability)} %`;
}
