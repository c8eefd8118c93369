import { describe, expect, it } from 'vitest';
import { plainText, tokenAttention } from '../src/layout/generation';
import type { Run } from '../src/run';
import { EMPTY, append } from '../src/generation';

const line = (pieces: string[], looked: number[]) => ({ pieces, looked, log_prob: null, done: false, error: null });

describe('a text during generation', () => {
  const generation = [line(['a', 'b'], []), line(['c'], [0.2, 0.3, 0.5]), line(['d'], [0.6, 0.4])].reduce(
    append,
    EMPTY,
  );

  it('grows by each line, and the prompt has no attention', () => {
    expect(generation.tokens).toEqual(['a', 'b', 'c', 'd']);
    expect(generation.attention).toEqual([[], [], [0.2, 0.3, 0.5], [0.6, 0.4]]);
    expect(tokenAttention(generation, 1, 'all')).toBeNull();
  });

  it('has weights on the tokens before; the start token is not one of them', () => {
    expect(tokenAttention(generation, 2, 'all')).toEqual([0.3, 0.5, 0, 0]);
  });

  it('may be longer than the context window', () => {
    expect(tokenAttention(generation, 3, 'all')).toEqual([0, 0.6, 0.4, 0]);
  });

  it('has the attention of single heads once the run is complete', () => {
    const bytes = Uint8Array.from([255, 0, 0, 255, 255, 0, 0, 255]);
    const heads = { kind: 'decoder' as const, nLayers: 1, nHeads: 2, nQueries: 2, nKeys: 2, bytes, entropy: [[0, 0]] };
    const whole = { ...generation, tokens: ['a', 'b'], run: { kinds: { decoder: heads } } as unknown as Run };
    expect(tokenAttention(whole, 1, '0:0')).toEqual([1, 0]);
    expect(tokenAttention(whole, 1, 'all')).toEqual([1, 0]);
    expect(tokenAttention(whole, 0, '0:1')).toEqual([0, 0]);
  });
});

it('tokens become text with spaces and line breaks', () => {
  expect(['▁the', '⏎', '</s>', 'x'].map(plainText)).toEqual([' the', '\n', '', 'x']);
});
