/** What the words of a question looked at in a text. */

import type { Heads } from '../seen';
import type { Word } from '../trace';
import { type Matrix, headMatrix, meanMatrix, merge, row } from './matrix';

/** A word of a text, and whether a space stands before it. */
export interface Written {
  text: string;
  space: boolean;
}

/** Reads which heads are meant: 'all', a layer, or layer:head; what the model does not have means all. */
export function headsNamed(name: string, heads: Heads): { layer?: number; head?: number } {
  const [layer, head] = name.split(':').map(Number);
  if (!(layer < heads.nLayers)) return {};
  return head < heads.nHeads ? { layer, head } : { layer };
}

/** Gives how much each word of the question looked at each word of the text. */
export function lookedAt(heads: Heads, name: string, question: Word[], context: Word[]): Matrix {
  const { layer, head } = headsNamed(name, heads);
  const pieces = layer !== undefined && head !== undefined ? headMatrix(heads, layer, head) : meanMatrix(heads, layer);
  return merge(pieces, question, context);
}

/** Gives how strongly each word of the text is coloured: by its share of the largest. */
export function shades(looks: Matrix, asked: number): number[] | null {
  if (asked < 0 || asked >= looks.rows) return null;
  const shares = Array.from(row(looks, asked));
  const most = Math.max(...shares, 1e-9);
  return shares.map((share) => share / most);
}

/** Gives the words with the largest shares, best first. */
export function mostLooked(looks: Matrix, asked: number, words: Word[], n: number): { word: string; share: number }[] {
  const shares = Array.from(row(looks, asked));
  return words
    .map((word, i) => ({ word: word.text, share: shares[i] }))
    .sort((a, b) => b.share - a.share)
    .slice(0, n);
}

/** Gives words as they are written: a piece that begins with the mark stands behind a space. */
export function written(words: Word[], pieces: string[]): Written[] {
  return words.map((word, i) => ({ text: word.text, space: i > 0 && pieces[word.places[0]].startsWith('▁') }));
}
