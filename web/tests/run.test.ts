import { beforeAll, describe, expect, it } from 'vitest';
import { headWeights, sideLabels, visibleHeads } from '../src/layout/heads';
import { outputWords } from '../src/layout/labels';
import { at, entropies, fromRows, headMatrix, meanMatrix, merge, row } from '../src/layout/matrix';
import { headStats } from '../src/layout/stats';
import { type Run, unpackRun } from '../src/run';
import { head, view } from './recorded';

let run: Run;
beforeAll(async () => {
  run = await unpackRun(view);
});
const sum = (list: ArrayLike<number>) => Array.from(list).reduce((total, value) => total + value, 0);

describe('unpacked weights', () => {
  it('are those of the server, as near as bytes can be', () => {
    const weights = headMatrix(run.kinds.cross!, head.layer, head.head);
    expect([weights.rows, weights.columns]).toEqual([head.queries.length, head.keys.length]);
    head.weights.forEach((exact, q) =>
      exact.forEach((weight, k) =>
        expect(Math.abs(at(weights, q, k) - weight)).toBeLessThanOrEqual(Math.sqrt(weight) / 255 + 1e-5),
      ),
    );
  });

  it('fill every head of every layer', () => {
    for (const heads of Object.values(run.kinds))
      for (let layer = 0; layer < heads.nLayers; layer++)
        for (let each = 0; each < heads.nHeads; each++) {
          const weights = headMatrix(heads, layer, each);
          for (let q = 0; q < weights.rows; q++) expect(sum(row(weights, q))).toBeCloseTo(1, 1);
        }
  });

  it('are zero on the future in the decoder', () => {
    const weights = headMatrix(run.kinds.decoder!, 0, 0);
    for (let q = 0; q < weights.rows; q++)
      for (let k = q + 1; k < weights.columns; k++) expect(at(weights, q, k)).toBe(0);
  });

  it('are refused if some are missing', async () => {
    const broken = { ...view, kinds: [{ ...view.kinds[0], n_keys: view.kinds[0].n_keys + 1 }] };
    await expect(unpackRun(broken)).rejects.toThrow(/expected \d+ weights, got \d+/);
  });
});

describe('words', () => {
  it('sum the tokens of a key and average those of a query', () => {
    const tokens = fromRows([
      [0.1, 0.2, 0.7],
      [0.3, 0.3, 0.4],
    ]);
    const merged = merge(
      tokens,
      [{ text: 'a', places: [0, 1] }],
      [
        { text: 'b', places: [0, 2] },
        { text: 'c', places: [1] },
      ],
    );
    expect(at(merged, 0, 0)).toBeCloseTo((0.8 + 0.7) / 2);
    expect(at(merged, 0, 1)).toBeCloseTo(0.25);
  });

  it('keep rows that sum to 1', () => {
    const merged = headWeights(run, 'cross', 0, 0, 'word')!;
    for (let q = 0; q < merged.rows; q++) expect(sum(row(merged, q))).toBeCloseTo(1, 1);
  });

  it('name queries of the decoder by the token they generate', () => {
    const special = { start: 'S', end: 'E' };
    expect(sideLabels(run, 'cross', 'word', special)).toEqual({
      queries: ['Introducing', "Xi'an", 'E'],
      keys: ['介绍', '一下', '西', '安', 'E'],
    });
    const decoder = sideLabels(run, 'decoder', 'token', special);
    expect(decoder.queries).toEqual([...view.target.pieces.slice(0, -1), 'E']);
    expect(decoder.keys).toEqual(['S', ...view.target.pieces.slice(0, -1)]);
    expect(outputWords(view.target).map((word) => word.text)).toEqual(['Introducing', "Xi'an"]);
  });
});

describe('heads', () => {
  it('are averaged over all layers or over one', () => {
    const cross = run.kinds.cross!;
    const all = meanMatrix(cross);
    const [low, high] = [meanMatrix(cross, 0), meanMatrix(cross, 1)];
    all.values.forEach((value, i) => expect(value).toBeCloseTo((low.values[i] + high.values[i]) / 2, 5));
  });

  it('are visible unless they are switched off', () => {
    expect([...visibleHeads(run, 'cross', 0, [1, 4], 'token').keys()]).toEqual([0, 2, 3, 5]);
    expect(headWeights(run, 'cross', 7, 0, 'word')).toBeNull();
  });

  it('are described by the positions they attend to', () => {
    const back = headStats(
      fromRows([
        [1, 0, 0],
        [1, 0, 0],
        [0, 1, 0],
      ]),
    );
    expect(back).toMatchObject({ peak: 1, previous: 2 / 3, first: 2 / 3, last: 0, diagonal: 1 / 3, next: 0 });
    expect(back.offset).toBeCloseTo(-2 / 3);
  });

  it('have the entropy that the server computes', () => {
    entropies(fromRows(head.weights)).forEach((value, q) => expect(value).toBeCloseTo(head.entropy[q], 5));
  });
});
