/** Attention from the words of a question to the words of its context. */

import type { Heads } from '../run';
import type { Word } from '../trace';
import { type Matrix, headMatrix, meanMatrix, merge, row } from './matrix';

/** A word of a text, and whether a space precedes it. */
export interface TextWord {
  text: string;
  space: boolean;
}

/** Parse 'all', a layer, or layer:head; what the model does not have means all. */
export function parseHeads(selected: string, heads: Heads): { layer?: number; head?: number } {
  const [layer, head] = selected.split(':').map(Number);
  if (!(layer < heads.nLayers)) return {};
  return head < heads.nHeads ? { layer, head } : { layer };
}

/** Return one head, or the mean over a layer or over all heads. */
export function selectedHeads(selected: string, heads: Heads): Matrix {
  const { layer, head } = parseHeads(selected, heads);
  return layer !== undefined && head !== undefined ? headMatrix(heads, layer, head) : meanMatrix(heads, layer);
}

/** Return the weights [question word][context word]. */
export function questionAttention(heads: Heads, selected: string, question: Word[], context: Word[]): Matrix {
  return merge(selectedHeads(selected, heads), question, context);
}

/** Return a row scaled so that its largest weight is 1; null if there is no such row. */
export function relativeWeights(attention: Matrix, index: number): number[] | null {
  if (index < 0 || index >= attention.rows) return null;
  const weights = Array.from(row(attention, index));
  const max = Math.max(...weights, 1e-9);
  return weights.map((weight) => weight / max);
}

/** Return the n words with the largest weights in a row, largest first. */
export function topWords(attention: Matrix, index: number, words: Word[], n: number) {
  const weights = Array.from(row(attention, index));
  return words
    .map((word, i) => ({ word: word.text, weight: weights[i] }))
    .sort((a, b) => b.weight - a.weight)
    .slice(0, n);
}

/** Find the spaces between words: a first token with SentencePiece's mark follows a space. */
export function textWords(words: Word[], tokens: string[]): TextWord[] {
  return words.map((word, i) => ({ text: word.text, space: i > 0 && tokens[word.places[0]].startsWith('▁') }));
}
