/** Cross-attention of output tokens: of the alignment heads, of all heads, or of the heads of one layer. */

import type { Heads } from '../run';
import type { Aligning } from '../trace';
import { type Matrix, headMatrix, meanMatrix } from './matrix';

/** Return the selection if the run has it ('best' if alignment heads are known, or a layer), else 'all'. */
export function availableHeads(selected: string, aligning: Aligning | null | undefined, nLayers: number): string {
  if (selected === 'best') return aligning ? 'best' : 'all';
  return Number(selected) < nLayers ? selected : 'all';
}

/** Return the weights of each output token on the source tokens. */
export function crossAttention(heads: Heads, selected: string, aligning: Aligning | null | undefined): Matrix {
  const available = availableHeads(selected, aligning, heads.nLayers);
  if (available === 'best') return alignmentHeads(heads, aligning!);
  return meanMatrix(heads, available === 'all' ? undefined : Number(available));
}

function alignmentHeads(heads: Heads, { layer, head }: Aligning): Matrix {
  return layer === null || head === null ? meanMatrix(heads, layer ?? undefined) : headMatrix(heads, layer, head);
}
