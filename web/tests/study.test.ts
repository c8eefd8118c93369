import { describe, expect, it } from 'vitest';
import { linesOf, meanCurve, meanOf, sorted } from '../src/layout/study';
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

describe('lines of a study', () => {
  const lines = linesOf(study);

  it('are means over seeds with their spread, the baseline first', () => {
    expect(lines.map((line) => line.variant)).toEqual(['baseline', 'rotary', 'none']);
    expect(lines[0].bleu).toEqual({ mean: 31, spread: Math.SQRT2, n: 2 });
    expect(lines[1].gain).toBe(3);
    expect(lines[0].gain).toBeNull();
  });

  it('tell what failed, and have no numbers for it', () => {
    expect(lines[2].errors).toEqual(['0: it broke']);
    expect([lines[2].bleu, lines[2].gain]).toEqual([null, null]);
  });

  it('are sorted either way, with what is unknown at the end', () => {
    const names = (rising: boolean) => sorted(lines, 'bleu', rising).map((line) => line.variant);
    expect(names(false)).toEqual(['rotary', 'baseline', 'none']);
    expect(names(true)).toEqual(['baseline', 'rotary', 'none']);
    expect(sorted(lines, 'variant', true).map((line) => line.variant)).toEqual(['baseline', 'none', 'rotary']);
  });
});

describe('curves', () => {
  it('are averaged step by step over the seeds that got there', () => {
    const one = [1, 2].map((step) => ({ step, loss: step, bleu: 10 * step }));
    expect(meanCurve([one, [{ step: 1, loss: 3, bleu: 30 }]])).toEqual([
      { step: 1, loss: 2, bleu: 20 },
      { step: 2, loss: 2, bleu: 20 },
    ]);
  });

  it('and means of nothing are none', () => {
    expect(meanOf([null])).toBeNull();
    expect(meanOf([5])).toEqual({ mean: 5, spread: 0, n: 1 });
  });
});
