/** Statistics of a head: how concentrated its weights are, and on which positions. */

import type { Matrix } from './matrix';
import { at, row } from './matrix';

export interface HeadStats {
  peak: number; // mean of the largest weight of each row
  diagonal: number; // mean weight of the key at the query's position
  previous: number;
  next: number;
  first: number;
  last: number;
  offset: number; // mean of key − query
}

/** `diagonal`, `previous`, `next` and `offset` are meaningful only if queries and keys are the same sentence. */
export function headStats(weights: Matrix): HeadStats {
  const mean = (value: (query: number) => number) => {
    let sum = 0;
    for (let query = 0; query < weights.rows; query++) sum += value(query);
    return sum / (weights.rows || 1);
  };
  const neighbour = (query: number, step: number) => {
    const key = query + step;
    return key >= 0 && key < weights.columns ? at(weights, query, key) : 0;
  };
  return {
    peak: mean((query) => Math.max(...row(weights, query))),
    diagonal: mean((query) => neighbour(query, 0)),
    previous: mean((query) => neighbour(query, -1)),
    next: mean((query) => neighbour(query, 1)),
    first: mean((query) => at(weights, query, 0)),
    last: mean((query) => at(weights, query, weights.columns - 1)),
    offset: mean((query) => row(weights, query).reduce((sum, weight, key) => sum + weight * (key - query), 0)),
  };
}
