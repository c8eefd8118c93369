/** A heatmap: the size of its cells, and the labels along its sides. */

import type { Measure } from './sentence';

export interface HeatmapFrame {
  x: number; // where the cells start
  y: number;
  cellWidth: number;
  cellHeight: number;
  width: number; // of all cells
  height: number;
  fullWidth: number;
  fullHeight: number;
  size: number; // of the font
  everyRow: number; // only every n-th row is labelled
  everyColumn: number;
  horizontal: boolean; // column labels are horizontal, not slanted
}

export interface HeatmapOptions {
  rows: string[];
  columns: string[];
  width: number; // available
  height: number; // of all cells, at most
  square: boolean;
  numbers: boolean; // leave space for numbers in the cells
  rowValues?: boolean; // and for one more number beside each row
}

const ROW_VALUES = 66; // pixels for the numbers beside the rows
const LINE = 13; // pixels between labels

export function layoutHeatmap(options: HeatmapOptions, measure: Measure): HeatmapFrame {
  const size = 13;
  const widest = (texts: string[]) => Math.ceil(Math.max(0, ...texts.map((text) => measure(text, size))));
  const x = Math.min(widest(options.rows), options.width * 0.3) + (options.rows.length ? 10 : 0);
  const max = { width: options.numbers ? 72 : 60, height: options.numbers ? 34 : 60 };
  const sideWidth = options.rowValues ? ROW_VALUES : 0;
  const minWidth = options.numbers ? 42 : 0.5;
  let cellWidth = Math.min(max.width, Math.max(minWidth, (options.width - x - sideWidth - 2) / options.columns.length));
  let cellHeight = Math.min(max.height, options.height / options.rows.length);
  if (options.square) cellWidth = cellHeight = Math.min(cellWidth, cellHeight);
  // Short labels, such as numbers, are horizontal and some are left out; long ones are slanted.
  const longest = widest(options.columns);
  const horizontal = longest + 6 <= cellWidth || longest <= 26;
  const labelHeight = Math.min(longest, 110);
  const y = options.columns.some(Boolean) ? (horizontal ? 24 : Math.ceil(labelHeight * 0.75) + 16) : 2;
  const [width, height] = [cellWidth * options.columns.length, cellHeight * options.rows.length];
  // Slanted labels extend beyond the right edge.
  const overhang = horizontal ? 0 : Math.max(0, Math.min(options.width - x - width, labelHeight * 0.75));
  return {
    x,
    y,
    cellWidth,
    cellHeight,
    width,
    height,
    fullWidth: x + width + Math.max(overhang, sideWidth) + 2,
    fullHeight: y + height + 2,
    size,
    everyRow: Math.max(1, Math.ceil(LINE / cellHeight)),
    everyColumn: Math.max(1, Math.ceil((horizontal ? longest + 5 : LINE) / cellWidth)),
    horizontal,
  };
}

/** Return the cell at a point, or null outside the cells. */
export function cellAt(frame: HeatmapFrame, x: number, y: number, rows: number, columns: number) {
  const row = Math.floor((y - frame.y) / frame.cellHeight);
  const column = Math.floor((x - frame.x) / frame.cellWidth);
  return row >= 0 && row < rows && column >= 0 && column < columns ? { row, column } : null;
}

/** Return every n-th index below count. */
export function everyNth(count: number, every: number): number[] {
  return Array.from({ length: Math.ceil(count / every) }, (_, i) => i * every);
}
