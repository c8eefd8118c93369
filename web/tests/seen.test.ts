import { beforeAll, describe, expect, it } from 'vitest';
import { headOf, headsOn, sideLabels } from '../src/layout/heads';
import { spokenWords } from '../src/layout/labels';
import { at, entropies, fromRows, headMatrix, meanMatrix, merge, row } from '../src/layout/matrix';
import { reportHead } from '../src/layout/report';
import { type Seen, see } from '../src/seen';
import { head, view } from './recorded';

let seen: Seen;
beforeAll(async () => {
  seen = await see(view);
});
const sum = (list: ArrayLike<number>) => Array.from(list).reduce((total, value) => total + value, 0);

describe('unpacked weights', () => {
  it('are those of the server, as near as bytes can be', () => {
    const weights = headMatrix(seen.kinds.cross!, head.layer, head.head);
    expect([weights.rows, weights.columns]).toEqual([head.queries.length, head.keys.length]);
    head.weights.forEach((exact, q) =>
      exact.forEach((weight, k) =>
        expect(Math.abs(at(weights, q, k) - weight)).toBeLessThanOrEqual(Math.sqrt(weight) / 255 + 1e-5),
      ),
    );
  });

  it('fill every head of every layer', () => {
    for (const heads of Object.values(seen.kinds))
      for (let layer = 0; layer < heads.nLayers; layer++)
        for (let each = 0; each < heads.nHeads; each++) {
          const weights = headMatrix(heads, layer, each);
          for (let q = 0; q < weights.rows; q++) expect(sum(row(weights, q))).toBeCloseTo(1, 1);
        }
  });

  it('leave the future of the decoder dark', () => {
    const weights = headMatrix(seen.kinds.decoder!, 0, 0);
    for (let q = 0; q < weights.rows; q++)
      for (let k = q + 1; k < weights.columns; k++) expect(at(weights, q, k)).toBe(0);
  });

  it('say when they are not whole', async () => {
    const broken = { ...view, kinds: [{ ...view.kinds[0], n_keys: view.kinds[0].n_keys + 1 }] };
    await expect(see(broken)).rejects.toThrow(/expected \d+ weights, got \d+/);
  });
});

describe('words', () => {
  it('add the pieces of a key and average those of a query', () => {
    const pieces = fromRows([
      [0.1, 0.2, 0.7],
      [0.3, 0.3, 0.4],
    ]);
    const merged = merge(
      pieces,
      [{ text: 'a', places: [0, 1] }],
      [
        { text: 'b', places: [0, 2] },
        { text: 'c', places: [1] },
      ],
    );
    expect(at(merged, 0, 0)).toBeCloseTo((0.8 + 0.7) / 2);
    expect(at(merged, 0, 1)).toBeCloseTo(0.25);
  });

  it('keep rows that add up to one', () => {
    const merged = headOf(seen, 'cross', 0, 0, 'word')!;
    for (let q = 0; q < merged.rows; q++) expect(sum(row(merged, q))).toBeCloseTo(1, 1);
  });

  it('name those who look across by what they say', () => {
    const signs = { start: 'S', end: 'E' };
    expect(sideLabels(seen, 'cross', 'word', signs)).toEqual({
      queries: ['Introducing', "Xi'an", 'E'],
      keys: ['介绍', '一下', '西', '安', 'E'],
    });
    expect(sideLabels(seen, 'decoder', 'token', signs).queries[0]).toBe('S');
    expect(spokenWords(view.target).map((word) => word.text)).toEqual(['Introducing', "Xi'an"]);
  });
});

describe('heads', () => {
  it('are averaged over all layers or over one', () => {
    const cross = seen.kinds.cross!;
    const all = meanMatrix(cross);
    const [low, high] = [meanMatrix(cross, 0), meanMatrix(cross, 1)];
    all.values.forEach((value, i) => expect(value).toBeCloseTo((low.values[i] + high.values[i]) / 2, 5));
  });

  it('are there unless they are switched off', () => {
    expect([...headsOn(seen, 'cross', 0, [1, 4], 'token').keys()]).toEqual([0, 2, 3, 5]);
    expect(headOf(seen, 'cross', 7, 0, 'word')).toBeNull();
  });

  it('are described by where they look', () => {
    const back = reportHead(
      fromRows([
        [1, 0, 0],
        [1, 0, 0],
        [0, 1, 0],
      ]),
    );
    expect(back).toMatchObject({ peak: 1, previous: 2 / 3, first: 2 / 3, last: 0, diagonal: 1 / 3, next: 0 });
    expect(back.offset).toBeCloseTo(-2 / 3);
  });

  it('have the entropy that the server gives', () => {
    entropies(fromRows(head.weights)).forEach((value, q) => expect(value).toBeCloseTo(head.entropy[q], 5));
  });
});
