import { beforeAll, describe, expect, it } from 'vitest';
import { fromOf, looked } from '../src/layout/aligning';
import { type Matrix, headMatrix, meanMatrix, row } from '../src/layout/matrix';
import { type Heads, see } from '../src/seen';
import { view } from './recorded';

let cross: Heads;
beforeAll(async () => {
  cross = (await see(view)).kinds.cross!;
});
const rows = (m: Matrix) => Array.from({ length: m.rows }, (_, i) => [...row(m, i)]);

describe('where the shares come from', () => {
  it('is the best where it was measured, and all where it was not', () => {
    expect(fromOf('best', { layer: 0, head: 3, at: 'read' }, 2)).toBe('best');
    expect(fromOf('best', null, 2)).toBe('all');
  });

  it('is a layer that the model has', () => {
    expect(fromOf('1', null, 2)).toBe('1');
    expect(fromOf('2', null, 2)).toBe('all');
    expect(fromOf('nonsense', null, 2)).toBe('all');
  });
});

describe('shares', () => {
  it('of all heads are their mean', () => {
    expect(rows(looked(cross, 'all', null))).toEqual(rows(meanMatrix(cross)));
    expect(rows(looked(cross, '1', null))).toEqual(rows(meanMatrix(cross, 1)));
  });

  it('of the best head are its rows as they are', () => {
    const head = rows(headMatrix(cross, 0, 3));
    for (const at of ['say', 'read']) {
      expect(rows(looked(cross, 'best', { layer: 0, head: 3, at }))).toEqual(head);
    }
  });

  it('may be a mean of heads too', () => {
    const mean = looked(cross, 'best', { layer: 1, head: null, at: 'say' });
    expect(rows(mean)).toEqual(rows(meanMatrix(cross, 1)));
    expect(rows(looked(cross, 'best', { layer: null, head: null, at: 'say' }))).toEqual(rows(meanMatrix(cross)));
  });
});
