import { describe, expect, it } from 'vitest';
import { headsNamed, lookedAt, mostLooked, shades, written } from '../src/layout/answers';
import { fromRows, row } from '../src/layout/matrix';
import type { Heads } from '../src/seen';
import type { Word } from '../src/trace';

const words = (...texts: string[]): Word[] => texts.map((text, i) => ({ text, places: [i] }));
const heads: Heads = {
  kind: 'encoder',
  nLayers: 1,
  nHeads: 2,
  nQueries: 2,
  nKeys: 2,
  bytes: Uint8Array.from([255, 0, 0, 255, 0, 255, 255, 0]),
  entropy: [[0, 0]],
};

describe('heads', () => {
  it('are named as all, a layer or one of them; what is not there means all', () => {
    expect(headsNamed('all', heads)).toEqual({});
    expect(headsNamed('0', heads)).toEqual({ layer: 0 });
    expect(headsNamed('0:1', heads)).toEqual({ layer: 0, head: 1 });
    expect(headsNamed('7:1', heads)).toEqual({});
  });

  it('are averaged, or looked at alone', () => {
    const [question, context] = [[{ text: 'q', places: [0] }], [{ text: 'c', places: [1] }]];
    expect([...row(lookedAt(heads, 'all', question, context), 0)]).toEqual([0.5]);
    expect([...row(lookedAt(heads, '0:1', question, context), 0)]).toEqual([1]);
  });
});

describe('looks', () => {
  const looks = fromRows([
    [0.1, 0.4, 0.2],
    [0, 0, 0],
  ]);

  it('colour words by their share of the largest', () => {
    expect(shades(looks, 0)!.map((shade) => shade.toFixed(2))).toEqual(['0.25', '1.00', '0.50']);
    expect(shades(looks, 1)).toEqual([0, 0, 0]);
    expect([shades(looks, -1), shades(looks, 2)]).toEqual([null, null]);
  });

  it('are told best first', () => {
    expect(mostLooked(looks, 0, words('a', 'b', 'c'), 2).map(({ word }) => word)).toEqual(['b', 'c']);
  });
});

it('words stand behind a space where their first piece has the mark', () => {
  expect(written(words('Anna', 'lives', '.'), ['▁Anna', '▁lives', '.']).map((word) => word.space)).toEqual([
    false,
    true,
    false,
  ]);
});
