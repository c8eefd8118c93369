/** The variants of a study: means and standard deviations over seeds, sorting, and learning curves. */

import type { Column } from '../state';
import type { Validation, Study, StudyRun } from '../trace';

export interface Mean {
  mean: number;
  std: number; // sample standard deviation; 0 for one value
  n: number;
}

export interface Variant {
  variant: string;
  part: string;
  changes: string[];
  parameters: number | null;
  speed: Mean | null;
  perplexity: Mean | null;
  bleu: Mean | null;
  gain: number | null; // difference in BLEU from the baseline
  errors: string[];
  curve: Validation[]; // mean over the seeds that got there
}

export function meanOf(values: (number | null)[]): Mean | null {
  const known = values.filter((value) => value !== null);
  if (!known.length) return null;
  const mean = known.reduce((sum, value) => sum + value, 0) / known.length;
  const squares = known.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  return { mean, std: known.length > 1 ? Math.sqrt(squares / (known.length - 1)) : 0, n: known.length };
}

/** Group runs by variant, in the study's order; the first is the baseline. */
export function variantsOf(study: Study): Variant[] {
  const runs = new Map<string, StudyRun[]>();
  for (const run of study.runs) runs.set(run.variant, [...(runs.get(run.variant) ?? []), run]);
  const variants = [...runs.values()].map(variantOf);
  const baseline = variants[0]?.bleu;
  const gain = ({ bleu }: Variant, i: number) => (i && baseline && bleu ? bleu.mean - baseline.mean : null);
  return variants.map((variant, i) => ({ ...variant, gain: gain(variant, i) }));
}

function variantOf(runs: StudyRun[]): Variant {
  const successful = runs.filter((run) => run.error === null);
  const { variant, part, changes } = runs[0];
  return {
    variant,
    part,
    changes,
    parameters: successful[0]?.parameters ?? null,
    speed: meanOf(successful.map((run) => run.tokens_per_second)),
    perplexity: meanOf(successful.map((run) => run.perplexity)),
    bleu: meanOf(successful.map((run) => run.bleu)),
    gain: null,
    errors: runs.filter((run) => run.error !== null).map((run) => `${run.seed}: ${run.error}`),
    curve: meanCurve(successful.map((run) => run.curve)),
  };
}

/** Return the mean of several curves at each step that any of them has. */
export function meanCurve(curves: Validation[][]): Validation[] {
  const steps = [...new Set(curves.flat().map((each) => each.step))].sort((a, b) => a - b);
  return steps.map((step) => {
    const here = curves.flat().filter((each) => each.step === step);
    const mean = (name: 'loss' | 'bleu') => here.reduce((sum, each) => sum + each[name], 0) / here.length;
    return { step, loss: mean('loss'), bleu: mean('bleu') };
  });
}

/** Sort by a column; variants without a value come last in either order. */
export function sortVariants(variants: Variant[], by: Column, ascending: boolean): Variant[] {
  const value = (variant: Variant): number | string | null => {
    const cell = variant[by];
    return cell !== null && typeof cell === 'object' ? cell.mean : cell;
  };
  const order = (a: Variant, b: Variant) => {
    const [x, y] = [value(a), value(b)];
    if (x === null || y === null) return Number(x === null) - Number(y === null);
    const difference = typeof x === 'string' ? x.localeCompare(String(y)) : x - Number(y);
    return ascending ? difference : -difference;
  };
  return [...variants].sort(order);
}
