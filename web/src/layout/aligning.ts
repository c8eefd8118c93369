/** What output words looked at: by the heads that link words best, by all, or by those of a layer. */

import type { Heads } from '../seen';
import type { Aligning } from '../trace';
import { type Matrix, headMatrix, meanMatrix } from './matrix';

/** Gives what of the reader's choice there is: 'best' where it was measured, a layer that the model has, or 'all'. */
export function fromOf(chosen: string, aligning: Aligning | null | undefined, nLayers: number): string {
  if (chosen === 'best') return aligning ? 'best' : 'all';
  return Number(chosen) < nLayers ? chosen : 'all';
}

/** Gives for each piece that was said how much of the source was looked at. */
export function looked(heads: Heads, chosen: string, aligning: Aligning | null | undefined): Matrix {
  const from = fromOf(chosen, aligning, heads.nLayers);
  if (from === 'best') return aligned(heads, aligning!);
  return meanMatrix(heads, from === 'all' ? undefined : Number(from));
}

function aligned(heads: Heads, { layer, head }: Aligning): Matrix {
  return layer === null || head === null ? meanMatrix(heads, layer ?? undefined) : headMatrix(heads, layer, head);
}
