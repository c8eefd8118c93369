/** Two columns of words, and lines between them for every head that is switched on. */

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
  step: number; // from one word to the next
  leftEdge: number; // where lines begin
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
const MOST_LINES = 3000; // more would neither be seen nor be fast

/** Sets queries on the left and keys on the right, and keeps a band for squares at the outer side of both. */
export function setColumns(queries: string[], keys: string[], band: number, width: number, measure: Measure): Columns {
  const most = Math.max(queries.length, keys.length);
  const [step, size] = most <= 16 ? [34, 17] : most <= 40 ? [26, 15] : [20, 13];
  const widest = (texts: string[]) => Math.max(0, ...texts.map((text) => measure(text, size)));
  const limit = Math.max(60, width * 0.36);
  const leftEdge = band + Math.min(limit, widest(queries)) + 14;
  const rightEdge = width - band - Math.min(limit, widest(keys)) - 14;
  const entries = (texts: string[]) => texts.map((text, index) => ({ index, text, y: TOP + step * (index + 0.5) }));
  const height = 2 * TOP + step * most;
  return { left: entries(queries), right: entries(keys), size, step, leftEdge, rightEdge, width, height };
}

export interface Focus {
  side: 'query' | 'key';
  index: number;
}

/** Gives the lines to draw, the faintest first; of a word that is pointed at all, else the strongest. */
export function setLines(placed: Columns, heads: Map<number, Matrix>, focus: Focus | null): Line[] {
  const least = focus ? 0.005 : leastOf(heads);
  const lines: Line[] = [];
  for (const [head, weights] of heads) {
    for (let query = 0; query < weights.rows; query++) {
      if (focus?.side === 'query' && query !== focus.index) continue;
      for (let key = 0; key < weights.columns; key++) {
        if (focus?.side === 'key' && key !== focus.index) continue;
        const weight = at(weights, query, key);
        if (weight < least) continue;
        lines.push({ head, query, key, weight, y1: placed.left[query].y, y2: placed.right[key].y });
      }
    }
  }
  lines.sort((a, b) => a.weight - b.weight);
  return lines.slice(-MOST_LINES);
}

/** Chooses from which weight on lines are drawn, so that long sentences stay clear and quick. */
function leastOf(heads: Map<number, Matrix>): number {
  const cells = [...heads.values()].reduce((sum, m) => sum + m.values.length, 0);
  return cells > 200_000 ? 0.15 : cells > 40_000 ? 0.08 : 0.03;
}

/** Gives for each word of the other side what each head gives it, for the coloured squares beside it. */
export function squares(heads: Map<number, Matrix>, focus: Focus): { head: number; shares: number[] }[] {
  return [...heads].map(([head, weights]) => ({
    head,
    shares:
      focus.side === 'query'
        ? Array.from({ length: weights.columns }, (_, key) => at(weights, focus.index, key))
        : Array.from({ length: weights.rows }, (_, query) => at(weights, query, focus.index)),
  }));
}
