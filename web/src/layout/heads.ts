/** The heads of one kind in the units that are shown. */

import type { Seen } from '../seen';
import type { KindName, Unit } from '../state';
import type { Side } from '../trace';
import { type Signs, labels } from './labels';
import { type Matrix, headMatrix, merge } from './matrix';

export interface Sides {
  queries: Side;
  keys: Side;
}

/** Returns the tokens that name rows and columns; those of a decoder's rows are the ones that were written from them. */
export function sidesOf(seen: Seen, kind: KindName): Sides {
  const { source, read, target } = seen.view;
  if (kind === 'encoder') return { queries: source, keys: source };
  return { queries: target, keys: kind === 'decoder' ? read : source };
}

export function sideLabels(seen: Seen, kind: KindName, unit: Unit, signs: Signs) {
  const { queries, keys } = sidesOf(seen, kind);
  return { queries: labels(queries, unit, signs), keys: labels(keys, unit, signs) };
}

/** Gives the weights of one head, merged to words where words are shown; null where there is no such head. */
export function headOf(seen: Seen, kind: KindName, layer: number, head: number, unit: Unit): Matrix | null {
  const heads = seen.kinds[kind];
  if (!heads || heads.entropy[layer]?.[head] === undefined || heads.entropy[layer][head] === null) return null;
  const pieces = headMatrix(heads, layer, head);
  if (unit === 'token') return pieces;
  const { queries, keys } = sidesOf(seen, kind);
  return merge(pieces, queries.words, keys.words);
}

/** Gives all heads of a layer that are switched on. */
export function headsOn(seen: Seen, kind: KindName, layer: number, off: number[], unit: Unit): Map<number, Matrix> {
  const found = new Map<number, Matrix>();
  const heads = seen.kinds[kind];
  for (let head = 0; head < (heads?.nHeads ?? 0); head++) {
    const weights = off.includes(head) ? null : headOf(seen, kind, layer, head, unit);
    if (weights) found.set(head, weights);
  }
  return found;
}
