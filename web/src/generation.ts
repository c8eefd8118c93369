/** A text during generation: its tokens so far, the attention of each, and at the end the whole run. */

import type { Run } from './run';
import type { GeneratedToken } from './trace';

export interface Generation {
  tokens: string[];
  attention: number[][]; // mean weights of each token on those before it; empty for the prompt
  run: Run | null; // once generation has finished
}

export const EMPTY: Generation = { tokens: [], attention: [], run: null };

/** Append a line of the stream. */
export function append(generation: Generation, line: GeneratedToken): Generation {
  const last = line.pieces.length - 1;
  return {
    tokens: [...generation.tokens, ...line.pieces],
    attention: [...generation.attention, ...line.pieces.map((_, i) => (i === last ? line.looked : []))],
    run: null,
  };
}
