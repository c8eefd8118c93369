/** The runs of a study, summed up by variant: means over seeds with their spread, sorted, and as curves. */

import type { Column } from '../state';
import type { Judged, Study, StudyRun } from '../trace';

export interface Mean {
  mean: number;
  spread: number; // standard deviation over the seeds; 0 for one
  n: number;
}

export interface Line {
  variant: string;
  part: string;
  changes: string[];
  parameters: number | null;
  speed: Mean | null;
  perplexity: Mean | null;
  bleu: Mean | null;
  gain: number | null; // of BLEU, against the baseline
  errors: string[];
  curve: Judged[]; // mean over the seeds that came so far
}

export function meanOf(values: (number | null)[]): Mean | null {
  const known = values.filter((value) => value !== null);
  if (!known.length) return null;
  const mean = known.reduce((sum, value) => sum + value, 0) / known.length;
  const squares = known.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  return { mean, spread: known.length > 1 ? Math.sqrt(squares / (known.length - 1)) : 0, n: known.length };
}

/** Gives one line for each variant, in the study's order; the first is the baseline. */
export function linesOf(study: Study): Line[] {
  const variants = new Map<string, StudyRun[]>();
  for (const run of study.runs) variants.set(run.variant, [...(variants.get(run.variant) ?? []), run]);
  const lines = [...variants.values()].map(lineOf);
  const base = lines[0]?.bleu;
  return lines.map((line, i) => ({ ...line, gain: i && base && line.bleu ? line.bleu.mean - base.mean : null }));
}

function lineOf(runs: StudyRun[]): Line {
  const good = runs.filter((run) => run.error === null);
  const { variant, part, changes } = runs[0];
  return {
    variant,
    part,
    changes,
    parameters: good[0]?.parameters ?? null,
    speed: meanOf(good.map((run) => run.tokens_per_second)),
    perplexity: meanOf(good.map((run) => run.perplexity)),
    bleu: meanOf(good.map((run) => run.bleu)),
    gain: null,
    errors: runs.filter((run) => run.error !== null).map((run) => `${run.seed}: ${run.error}`),
    curve: meanCurve(good.map((run) => run.curve)),
  };
}

/** Gives the mean of several curves at each step that any of them has. */
export function meanCurve(curves: Judged[][]): Judged[] {
  const steps = [...new Set(curves.flat().map((each) => each.step))].sort((a, b) => a - b);
  return steps.map((step) => {
    const here = curves.flat().filter((each) => each.step === step);
    const mean = (name: 'loss' | 'bleu') => here.reduce((sum, each) => sum + each[name], 0) / here.length;
    return { step, loss: mean('loss'), bleu: mean('bleu') };
  });
}

/** Sorts by a column; what has no number there comes last, either way. */
export function sorted(lines: Line[], by: Column, rising: boolean): Line[] {
  const value = (line: Line): number | string | null => {
    const found = line[by];
    return found !== null && typeof found === 'object' ? found.mean : found;
  };
  const order = (a: Line, b: Line) => {
    const [x, y] = [value(a), value(b)];
    if (x === null || y === null) return Number(x === null) - Number(y === null);
    const less = typeof x === 'string' ? x.localeCompare(String(y)) : x - Number(y);
    return rising ? less : -less;
  };
  return [...lines].sort(order);
}
