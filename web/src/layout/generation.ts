/** Attention from a generated token to the tokens before it. */

import type { Generation } from '../generation';
import { selectedHeads } from './answers';
import { row } from './matrix';

/** Return a token as readable text: spaces and line breaks for their marks, nothing for start and end. */
export function plainText(token: string): string {
  return token === '<s>' || token === '</s>' ? '' : token.replaceAll('▁', ' ').replaceAll('⏎', '\n');
}

/** Return the weight of each token when one was generated: of the selected heads once the run is complete. */
export function tokenAttention({ tokens, attention, run }: Generation, token: number, heads: string): number[] | null {
  const decoder = run?.kinds.decoder;
  if (decoder && token >= 0 && token < decoder.nQueries) {
    const weights = Array.from(row(selectedHeads(heads, decoder), token)).slice(0, token + 1);
    return alignToTokens(weights, token, tokens.length);
  }
  const weights = attention[token];
  return weights?.length ? alignToTokens(weights, token, tokens.length) : null;
}

/** Shift weights over decoder inputs, which begin with the start token, to the tokens themselves. */
function alignToTokens(weights: number[], token: number, count: number): number[] {
  const aligned = new Array<number>(count).fill(0);
  weights.forEach((weight, i) => {
    const index = token - weights.length + i; // the last weight is that of the token before
    if (index >= 0) aligned[index] = weight;
  });
  return aligned;
}
