import { describe, expect, it } from 'vitest';
import { parseHeads, questionAttention, relativeWeights, textWords, topWords } from '../src/layout/answers';
import { fromRows, row } from '../src/layout/matrix';
import type { Heads } from '../src/run';
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
  it('are all, those of a layer, or one; what the model does not have means all', () => {
    expect(parseHeads('all', heads)).toEqual({});
    expect(parseHeads('0', heads)).toEqual({ layer: 0 });
    expect(parseHeads('0:1', heads)).toEqual({ layer: 0, head: 1 });
    expect(parseHeads('7:1', heads)).toEqual({});
  });

  it('are averaged, or one is used', () => {
    const [question, context] = [[{ text: 'q', places: [0] }], [{ text: 'c', places: [1] }]];
    expect([...row(questionAttention(heads, 'all', question, context), 0)]).toEqual([0.5]);
    expect([...row(questionAttention(heads, '0:1', question, context), 0)]).toEqual([1]);
  });
});

describe('attention of a word', () => {
  const attention = fromRows([
    [0.1, 0.4, 0.2],
    [0, 0, 0],
  ]);

  it('is scaled to its largest weight', () => {
    expect(relativeWeights(attention, 0)!.map((weight) => weight.toFixed(2))).toEqual(['0.25', '1.00', '0.50']);
    expect(relativeWeights(attention, 1)).toEqual([0, 0, 0]);
    expect([relativeWeights(attention, -1), relativeWeights(attention, 2)]).toEqual([null, null]);
  });

  it('lists the largest weights first', () => {
    expect(topWords(attention, 0, words('a', 'b', 'c'), 2).map(({ word }) => word)).toEqual(['b', 'c']);
  });
});

it('words follow a space if their first token has the mark', () => {
  expect(textWords(words('Anna', 'lives', '.'), ['▁Anna', '▁lives', '.']).map((word) => word.space)).toEqual([
    false,
    true,
    false,
  ]);
});
