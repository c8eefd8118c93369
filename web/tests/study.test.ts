import { describe, expect, it } from 'vitest';
import { meanCurve, meanOf, sortVariants, variantsOf } from '../src/layout/study';
import type { Study, StudyRun } from '../src/trace';

function run(variant: string, seed: number, bleu: number | null, more: Partial<StudyRun> = {}): StudyRun {
  const error = bleu === null ? 'it broke' : null;
  const curve = bleu === null ? [] : [{ step: 10, loss: 3, bleu: bleu / 2 }];
  const known = { parameters: 100, tokens_per_second: 50, seconds: 7, perplexity: 4 };
  return { variant, part: '', changes: [], seed, error, bleu, curve, ...known, ...more };
}

const study: Study = {
  name: 'tiny',
  measured_on: 'test',
  clear: [],
  runs: [
    run('baseline', 0, 30),
    run('rotary', 0, 33),
    run('baseline', 1, 32),
    run('rotary', 1, 35),
    run('none', 0, null),
  ],
};

describe('variants of a study', () => {
  const variants = variantsOf(study);

  it('have means and standard deviations over seeds, the baseline first', () => {
    expect(variants.map(({ variant }) => variant)).toEqual(['baseline', 'rotary', 'none']);
    expect(variants[0].bleu).toEqual({ mean: 31, std: Math.SQRT2, n: 2 });
    expect(variants[1].gain).toBe(3);
    expect(variants[0].gain).toBeNull();
  });

  it('list errors of failed runs, which have no numbers', () => {
    expect(variants[2].errors).toEqual(['0: it broke']);
    expect([variants[2].bleu, variants[2].gain]).toEqual([null, null]);
  });

  it('are sorted in either order, those without a value last', () => {
    const names = (ascending: boolean) => sortVariants(variants, 'bleu', ascending).map(({ variant }) => variant);
    expect(names(false)).toEqual(['rotary', 'baseline', 'none']);
    expect(names(true)).toEqual(['baseline', 'rotary', 'none']);
    expect(sortVariants(variants, 'variant', true).map(({ variant }) => variant)).toEqual([
      'baseline',
      'none',
      'rotary',
    ]);
  });
});

describe('curves', () => {
  it('are averaged at each step over the seeds that got there', () => {
    const one = [1, 2].map((step) => ({ step, loss: step, bleu: 10 * step }));
    expect(meanCurve([one, [{ step: 1, loss: 3, bleu: 30 }]])).toEqual([
      { step: 1, loss: 2, bleu: 20 },
      { step: 2, loss: 2, bleu: 20 },
    ]);
  });

  it('have no mean without values', () => {
    expect(meanOf([null])).toBeNull();
    expect(meanOf([5])).toEqual({ mean: 5, std: 0, n: 1 });
  });
});
