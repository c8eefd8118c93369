/** What kind of head it is: how spread out it looks, and where to. */

import type { Matrix } from './matrix';
import { at, row } from './matrix';

export interface HeadReport {
  peak: number; // mean of the largest weight of each row
  diagonal: number; // mean weight of the key at the query's own place
  previous: number;
  next: number;
  first: number;
  last: number;
  offset: number; // mean of key − query; backwards is negative
}

/** Measures a head; places are compared only where queries and keys are the same sentence. */
export function reportHead(weights: Matrix): HeadReport {
  const mean = (share: (query: number) => number) => {
    let sum = 0;
    for (let query = 0; query < weights.rows; query++) sum += share(query);
    return sum / (weights.rows || 1);
  };
  const near = (query: number, step: number) => {
    const key = query + step;
    return key >= 0 && key < weights.columns ? at(weights, query, key) : 0;
  };
  return {
    peak: mean((query) => Math.max(...row(weights, query))),
    diagonal: mean((query) => near(query, 0)),
    previous: mean((query) => near(query, -1)),
    next: mean((query) => near(query, 1)),
    first: mean((query) => at(weights, query, 0)),
    last: mean((query) => at(weights, query, weights.columns - 1)),
    offset: mean((query) => row(weights, query).reduce((sum, weight, key) => sum + weight * (key - query), 0)),
  };
}
