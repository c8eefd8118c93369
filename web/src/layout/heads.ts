/** The heads of one kind of attention, over words or tokens. */

import type { Run } from '../run';
import type { KindName, Unit } from '../state';
import type { Side } from '../trace';
import { type SpecialLabels, labels } from './labels';
import { type Matrix, headMatrix, merge } from './matrix';

export interface Sides {
  queries: Side;
  keys: Side;
}

/** Return what rows and columns are named by; a row of the decoder is named by the token it generates. */
export function sidesOf(run: Run, kind: KindName): Sides {
  const { source, read, target } = run.view;
  if (kind === 'encoder') return { queries: source, keys: source };
  return { queries: target, keys: kind === 'decoder' ? read : source };
}

export function sideLabels(run: Run, kind: KindName, unit: Unit, special: SpecialLabels) {
  const { queries, keys } = sidesOf(run, kind);
  return { queries: labels(queries, unit, special), keys: labels(keys, unit, special) };
}

/** Return the weights of one head, over words or tokens; null if there is no such head. */
export function headWeights(run: Run, kind: KindName, layer: number, head: number, unit: Unit): Matrix | null {
  const heads = run.kinds[kind];
  if (!heads || heads.entropy[layer]?.[head] === undefined || heads.entropy[layer][head] === null) return null;
  const tokens = headMatrix(heads, layer, head);
  if (unit === 'token') return tokens;
  const { queries, keys } = sidesOf(run, kind);
  return merge(tokens, queries.words, keys.words);
}

/** Return the weights of all heads of a layer that are not switched off. */
export function visibleHeads(run: Run, kind: KindName, layer: number, off: number[], unit: Unit): Map<number, Matrix> {
  const visible = new Map<number, Matrix>();
  const heads = run.kinds[kind];
  for (let head = 0; head < (heads?.nHeads ?? 0); head++) {
    const weights = off.includes(head) ? null : headWeights(run, kind, layer, head, unit);
    if (weights) visible.set(head, weights);
  }
  return visible;
}
