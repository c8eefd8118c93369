import { describe, expect, it } from 'vitest';
import { lookedBack, read } from '../src/layout/writing';
import type { Seen } from '../src/seen';
import { NOTHING, added } from '../src/wrote';

const line = (pieces: string[], looked: number[]) => ({ pieces, looked, log_prob: null, done: false, error: null });

describe('a text that is being written', () => {
  const wrote = [line(['a', 'b'], []), line(['c'], [0.2, 0.3, 0.5]), line(['d'], [0.6, 0.4])].reduce(added, NOTHING);

  it('grows by each line, and the prompt looked at nothing', () => {
    expect(wrote.pieces).toEqual(['a', 'b', 'c', 'd']);
    expect(wrote.looks).toEqual([[], [], [0.2, 0.3, 0.5], [0.6, 0.4]]);
    expect(lookedBack(wrote, 1, 'all')).toBeNull();
  });

  it('is looked back at from the newest piece on; what begins the text is no piece', () => {
    expect(lookedBack(wrote, 2, 'all')).toEqual([0.3, 0.5, 0, 0]);
  });

  it('may have forgotten its beginning', () => {
    expect(lookedBack(wrote, 3, 'all')).toEqual([0, 0.6, 0.4, 0]);
  });

  it('is looked at by single heads once the whole is there', () => {
    const bytes = Uint8Array.from([255, 0, 0, 255, 255, 0, 0, 255]);
    const heads = { kind: 'decoder' as const, nLayers: 1, nHeads: 2, nQueries: 2, nKeys: 2, bytes, entropy: [[0, 0]] };
    const whole = { ...wrote, pieces: ['a', 'b'], seen: { kinds: { decoder: heads } } as unknown as Seen };
    expect(lookedBack(whole, 1, '0:0')).toEqual([1, 0]);
    expect(lookedBack(whole, 1, 'all')).toEqual([1, 0]);
    expect(lookedBack(whole, 0, '0:1')).toEqual([0, 0]);
  });
});

it('pieces are read with their spaces and lines', () => {
  expect(['▁the', '⏎', '</s>', 'x'].map(read)).toEqual([' the', '\n', '', 'x']);
});
