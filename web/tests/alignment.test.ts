import { beforeAll, describe, expect, it } from 'vitest';
import { availableHeads, crossAttention } from '../src/layout/alignment';
import { type Matrix, headMatrix, meanMatrix, row } from '../src/layout/matrix';
import { type Heads, unpackRun } from '../src/run';
import { view } from './recorded';

let cross: Heads;
beforeAll(async () => {
  cross = (await unpackRun(view)).kinds.cross!;
});
const rows = (m: Matrix) => Array.from({ length: m.rows }, (_, i) => [...row(m, i)]);

describe('selected heads', () => {
  it('are the alignment heads if they are known, else all', () => {
    expect(availableHeads('best', { layer: 0, head: 3, at: 'read' }, 2)).toBe('best');
    expect(availableHeads('best', null, 2)).toBe('all');
  });

  it('are those of a layer that the model has', () => {
    expect(availableHeads('1', null, 2)).toBe('1');
    expect(availableHeads('2', null, 2)).toBe('all');
    expect(availableHeads('nonsense', null, 2)).toBe('all');
  });
});

describe('cross-attention', () => {
  it('of all heads is their mean', () => {
    expect(rows(crossAttention(cross, 'all', null))).toEqual(rows(meanMatrix(cross)));
    expect(rows(crossAttention(cross, '1', null))).toEqual(rows(meanMatrix(cross, 1)));
  });

  it('of an alignment head has its rows as they are', () => {
    const head = rows(headMatrix(cross, 0, 3));
    for (const at of ['say', 'read'])
      expect(rows(crossAttention(cross, 'best', { layer: 0, head: 3, at }))).toEqual(head);
  });

  it('may be a mean of heads', () => {
    const mean = crossAttention(cross, 'best', { layer: 1, head: null, at: 'say' });
    expect(rows(mean)).toEqual(rows(meanMatrix(cross, 1)));
    expect(rows(crossAttention(cross, 'best', { layer: null, head: null, at: 'say' }))).toEqual(
      rows(meanMatrix(cross)),
    );
  });
});
