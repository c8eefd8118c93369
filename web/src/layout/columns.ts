/** Two columns of words, and lines between them for every visible head. */

import type { Matrix } from './matrix';
import { at } from './matrix';
import type { Measure } from './sentence';

export interface Entry {
  index: number;
  text: string;
  y: number; // the middle
}

export interface Columns {
  left: Entry[];
  right: Entry[];
  size: number;
  step: number; // distance between words
  leftEdge: number; // where lines start
  rightEdge: number; // and end
  width: number;
  height: number;
}

export interface Line {
  head: number;
  query: number;
  key: number;
  weight: number;
  y1: number;
  y2: number;
}

const TOP = 16;
const MAX_LINES = 3000; // more would be slow and illegible

/** Place queries on the left and keys on the right, with a band for squares at the outer side of both. */
export function layoutColumns(
  queries: string[],
  keys: string[],
  band: number,
  width: number,
  measure: Measure,
): Columns {
  const longest = Math.max(queries.length, keys.length);
  const [step, size] = longest <= 16 ? [34, 17] : longest <= 40 ? [26, 15] : [20, 13];
  const widest = (texts: string[]) => Math.max(0, ...texts.map((text) => measure(text, size)));
  const limit = Math.max(60, width * 0.36);
  const leftEdge = band + Math.min(limit, widest(queries)) + 14;
  const rightEdge = width - band - Math.min(limit, widest(keys)) - 14;
  const entries = (texts: string[]) => texts.map((text, index) => ({ index, text, y: TOP + step * (index + 0.5) }));
  const height = 2 * TOP + step * longest;
  return { left: entries(queries), right: entries(keys), size, step, leftEdge, rightEdge, width, height };
}

export interface Focus {
  side: 'query' | 'key';
  index: number;
}

/** Return the lines to draw, weakest first: all those of the word in focus, else the strongest. */
export function layoutLines(columns: Columns, heads: Map<number, Matrix>, focus: Focus | null): Line[] {
  const min = focus ? 0.005 : minWeight(heads);
  const lines: Line[] = [];
  for (const [head, weights] of heads) {
    for (let query = 0; query < weights.rows; query++) {
      if (focus?.side === 'query' && query !== focus.index) continue;
      for (let key = 0; key < weights.columns; key++) {
        if (focus?.side === 'key' && key !== focus.index) continue;
        const weight = at(weights, query, key);
        if (weight < min) continue;
        lines.push({ head, query, key, weight, y1: columns.left[query].y, y2: columns.right[key].y });
      }
    }
  }
  lines.sort((a, b) => a.weight - b.weight);
  return lines.slice(-MAX_LINES);
}

/** Return the smallest weight that is drawn; it is larger for long sentences, to keep them legible and fast. */
function minWeight(heads: Map<number, Matrix>): number {
  const cells = [...heads.values()].reduce((sum, m) => sum + m.values.length, 0);
  return cells > 200_000 ? 0.15 : cells > 40_000 ? 0.08 : 0.03;
}

/** Return the weight of each head between the word in focus and every word of the other side. */
export function squares(heads: Map<number, Matrix>, focus: Focus): { head: number; weights: number[] }[] {
  return [...heads].map(([head, weights]) => ({
    head,
    weights:
      focus.side === 'query'
        ? Array.from({ length: weights.columns }, (_, key) => at(weights, focus.index, key))
        : Array.from({ length: weights.rows }, (_, query) => at(weights, query, focus.index)),
  }));
}
