/** One matrix large: its cells, and the words along its sides. */

import type { Measure } from './sentence';

export interface MapFrame {
  x: number; // where the cells begin
  y: number;
  cellWidth: number;
  cellHeight: number;
  width: number; // of the cells together
  height: number;
  fullWidth: number;
  fullHeight: number;
  size: number; // of the letters
  everyRow: number; // only each so-many-th word is written
  everyColumn: number;
  upright: boolean; // words over the columns stand upright
}

export interface MapWish {
  rows: string[];
  columns: string[];
  width: number; // that there is
  height: number; // that cells may take at most
  square: boolean;
  numbers: boolean; // leave room for numbers in the cells
  aside?: boolean; // and for one more beside each row
}

const ASIDE = 66; // pixels for the numbers beside the rows
const LEAST = 13; // pixels that a word needs in its direction

export function setMap(wish: MapWish, measure: Measure): MapFrame {
  const size = 13;
  const widest = (texts: string[]) => Math.ceil(Math.max(0, ...texts.map((text) => measure(text, size))));
  const x = Math.min(widest(wish.rows), wish.width * 0.3) + (wish.rows.length ? 10 : 0);
  const most = { wide: wish.numbers ? 72 : 60, high: wish.numbers ? 34 : 60 };
  const beside = wish.aside ? ASIDE : 0;
  const least = wish.numbers ? 42 : 0.5;
  let cellWidth = Math.min(most.wide, Math.max(least, (wish.width - x - beside - 2) / wish.columns.length));
  let cellHeight = Math.min(most.high, wish.height / wish.rows.length);
  if (wish.square) cellWidth = cellHeight = Math.min(cellWidth, cellHeight);
  // Short names, such as numbers, stand upright and some are left out; long ones lean.
  const longest = widest(wish.columns);
  const upright = longest + 6 <= cellWidth || longest <= 26;
  const room = Math.min(longest, 110);
  const y = wish.columns.some(Boolean) ? (upright ? 24 : Math.ceil(room * 0.75) + 16) : 2;
  const [width, height] = [cellWidth * wish.columns.length, cellHeight * wish.rows.length];
  // Slanted words lean over the right edge.
  const lean = upright ? 0 : Math.max(0, Math.min(wish.width - x - width, room * 0.75));
  return {
    x,
    y,
    cellWidth,
    cellHeight,
    width,
    height,
    fullWidth: x + width + Math.max(lean, beside) + 2,
    fullHeight: y + height + 2,
    size,
    everyRow: Math.max(1, Math.ceil(LEAST / cellHeight)),
    everyColumn: Math.max(1, Math.ceil((upright ? longest + 5 : LEAST) / cellWidth)),
    upright,
  };
}

/** Gives the cell under a point of the picture, or null beside the cells. */
export function cellAt(frame: MapFrame, x: number, y: number, rows: number, columns: number) {
  const row = Math.floor((y - frame.y) / frame.cellHeight);
  const column = Math.floor((x - frame.x) / frame.cellWidth);
  return row >= 0 && row < rows && column >= 0 && column < columns ? { row, column } : null;
}

/** Puts the numbers of tokens that need room at the side first: every n-th place. */
export function everyNth(count: number, every: number): number[] {
  return Array.from({ length: Math.ceil(count / every) }, (_, i) => i * every);
}
