import { describe, expect, it } from 'vitest';
import { curvePath, extent, layoutChart } from '../src/layout/chart';
import { needsDarkText, palette, ramp, signedIndex, weightIndex } from '../src/layout/colour';
import { layoutColumns, layoutLines, squares } from '../src/layout/columns';
import { layoutGrid } from '../src/layout/grid';
import { percent, short } from '../src/layout/labels';
import { cellAt, everyNth, layoutHeatmap } from '../src/layout/heatmap';
import { fromRows, matrix } from '../src/layout/matrix';
import { columnOrder, join, reorder } from '../src/layout/positions';
import { type Box, layoutCurves, layoutSentences, maxWeights } from '../src/layout/sentence';
import { paintBytes, paintMatrix, pool, stretch } from '../src/layout/tile';
import { nextIndex } from '../src/parts/roving';
import { measure } from './recorded';

const overlap = (a: Box, b: Box) =>
  a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;

describe('a sentence and its translation', () => {
  const words = Array.from({ length: 40 }, (_, i) => `word${i}`);
  it.each([320, 700, 1100])('do not overlap in %i pixels', (width) => {
    const layout = layoutSentences({ source: words, target: words, special: [] }, width, measure);
    const boxes = [...layout.source, ...layout.target];
    for (const box of boxes) {
      expect(box.x).toBeGreaterThanOrEqual(0);
      expect(box.x + box.width).toBeLessThanOrEqual(width + 1e-6);
      expect(box.y + box.height).toBeLessThanOrEqual(layout.height + 1e-6);
    }
    boxes.forEach((a, i) => boxes.slice(i + 1).forEach((b) => expect(overlap(a, b)).toBe(false)));
    expect(Math.max(...layout.source.map((box) => box.y + box.height))).toBeLessThan(
      Math.min(...layout.target.map((box) => box.y)),
    );
  });

  it('have a large font if there is space', () => {
    const texts = { source: ['介绍', '西安'], target: ['Introducing'], special: [] };
    expect(layoutSentences(texts, 1000, measure).size).toBeGreaterThan(layoutSentences(texts, 130, measure).size);
  });

  it('are joined by the curves above a weight, weakest first', () => {
    const layout = layoutSentences({ source: ['a', 'b', 'E'], target: ['x', 'y', 'E'], special: ['E'] }, 500, measure);
    const weights = fromRows([
      [0.9, 0.06, 0.04],
      [0.3, 0.5, 0.2],
      [0, 0, 1],
    ]);
    expect(layoutCurves(layout, weights, [], 0.1).map((c) => [c.target, c.source])).toEqual([
      [1, 2],
      [1, 0],
      [1, 1],
      [0, 0],
    ]);
    expect(layoutCurves(layout, weights, [0], 0.02).map((c) => c.source)).toEqual([2, 1, 0]);
    expect(maxWeights(weights, [0, 1]).map((s) => Math.round(100 * s))).toEqual([90, 50, 20]);
  });
});

describe('lines between columns', () => {
  const words = ['a', 'b', 'c'];
  const layout = layoutColumns(words, words, 0, 600, measure);
  const heads = new Map([
    [
      0,
      fromRows([
        [1, 0, 0],
        [0.02, 0.98, 0],
        [0.2, 0.3, 0.5],
      ]),
    ],
    [
      3,
      fromRows([
        [0, 1, 0],
        [0, 1, 0],
        [0, 1, 0],
      ]),
    ],
  ]);
  it('are those above the smallest weight, the strongest last', () => {
    const lines = layoutLines(layout, heads, null);
    expect(lines.map((line) => line.weight)).toEqual(lines.map((line) => line.weight).sort((a, b) => a - b));
    expect(lines).toHaveLength(8);
    expect(lines.find((line) => line.head === 3 && line.query === 2)).toMatchObject({
      y1: layout.left[2].y,
      y2: layout.right[1].y,
    });
  });
  it('are all those of the word in focus', () => {
    expect(layoutLines(layout, heads, { side: 'query', index: 1 })).toHaveLength(3);
    expect(
      layoutLines(layout, heads, { side: 'key', index: 0 })
        .map((line) => line.query)
        .sort(),
    ).toEqual([0, 1, 2]);
    expect(squares(heads, { side: 'key', index: 1 })).toEqual([
      { head: 0, weights: [0, expect.closeTo(0.98), expect.closeTo(0.3)] },
      { head: 3, weights: [1, 1, 1] },
    ]);
  });
  it('are limited in long sentences', () => {
    const [long, many] = [Array.from({ length: 300 }, String), matrix(300, 300)];
    many.values.fill(1 / 300);
    expect(layoutLines(layoutColumns(long, long, 0, 600, measure), new Map([[0, many]]), null)).toHaveLength(0);
    many.values.fill(0.5);
    expect(layoutLines(layoutColumns(long, long, 0, 600, measure), new Map([[0, many]]), null)).toHaveLength(3000);
  });
});

describe('pixels', () => {
  it('show the largest weight under them', () => {
    const bytes = new Uint8Array(300 * 300);
    bytes[123 * 300 + 217] = 255;
    const small = pool(bytes, 300, 300, 60, 50);
    expect(small).toHaveLength(3000);
    expect(Math.max(...small)).toBe(255);
    expect(small.indexOf(255)).toBe(Math.floor((123 * 50) / 300) * 60 + Math.floor((217 * 60) / 300));
  });
  it('are the colours of the ramp', () => {
    const colours = palette(false);
    const pixels = paintBytes(Uint8Array.from([0, 255, 128, 64]), 2, 2, 4, 4, colours.weights);
    const at = (x: number, y: number) => [...pixels.slice(4 * (4 * y + x), 4 * (4 * y + x) + 3)];
    expect(at(0, 0)).toEqual([...colours.weights.slice(0, 3)]);
    expect(at(3, 1)).toEqual([...colours.weights.slice(765, 768)]);
    expect(at(1, 3)).toEqual([...colours.weights.slice(384, 387)]);
    expect(paintMatrix(fromRows([[-2, 2]]), 2, 1, colours, { limit: 2 }).slice(0, 3)).toEqual(
      colours.signed.slice(0, 3),
    );
  });
  it('may be scaled to the largest', () => {
    expect([...stretch(Uint8Array.from([0, 10, 20]))]).toEqual([0, 128, 255]);
    expect([...stretch(Uint8Array.from([0, 0]))]).toEqual([0, 0]);
  });
  it('of 48 heatmaps of 300 × 300 are painted in 1.5 seconds', () => {
    const bytes = new Uint8Array(300 * 300).map((_, i) => i % 256);
    const started = performance.now();
    for (let i = 0; i < 48; i++) paintBytes(bytes, 300, 300, 120, 120, palette(false).weights);
    expect(performance.now() - started).toBeLessThan(1500);
  });
});

describe('colours', () => {
  const light = (colours: Uint8ClampedArray, i: number) =>
    0.2126 * colours[3 * i] + 0.7152 * colours[3 * i + 1] + 0.0722 * colours[3 * i + 2];
  it.each([false, true])('are monotonic in lightness, so that hue is not needed (dark: %s)', (dark) => {
    const { weights, signed } = palette(dark);
    const up = dark ? 1 : -1;
    for (let i = 8; i < 256; i += 8) expect(up * (light(weights, i) - light(weights, i - 8))).toBeGreaterThan(0);
    for (let i = 136; i < 256; i += 8) expect(up * (light(signed, i) - light(signed, i - 8))).toBeGreaterThan(0);
    for (let i = 120; i > 8; i -= 8) expect(up * (light(signed, i - 8) - light(signed, i))).toBeGreaterThan(0);
  });
  it('blend in 256 steps from first to last', () => {
    const colours = ramp(['#000000', '#ffffff']);
    expect([colours[0], colours[767]]).toEqual([0, 255]);
  });
  it('are found by weights and by signed numbers', () => {
    expect([weightIndex(0), weightIndex(0.25), weightIndex(1), weightIndex(2)]).toEqual([0, 128, 255, 255]);
    expect([signedIndex(-3, 3), signedIndex(0, 3), signedIndex(3, 3)]).toEqual([0, 128, 255]);
    expect(needsDarkText(palette(false).weights, 0)).toBe(true);
    expect(needsDarkText(palette(false).weights, 255)).toBe(false);
  });
});

describe('heatmaps', () => {
  it.each([
    [6, 9, 320],
    [300, 300, 1000],
    [64, 32, 400],
  ])('of %i × %i fit into %i pixels', (rows, columns, width) => {
    const frame = layoutHeatmap(
      {
        rows: Array(rows).fill('word'),
        columns: Array(columns).fill('word'),
        width,
        height: 520,
        square: true,
        numbers: false,
      },
      measure,
    );
    expect(frame.fullWidth).toBeLessThanOrEqual(width + 2);
    expect(frame.height).toBeLessThanOrEqual(521);
    expect(cellAt(frame, frame.x + 2.5 * frame.cellWidth, frame.y + 1.5 * frame.cellHeight, rows, columns)).toEqual({
      row: 1,
      column: 2,
    });
    expect(cellAt(frame, frame.x - 1, frame.y + 1, rows, columns)).toBeNull();
    expect(everyNth(rows, frame.everyRow).length * 13).toBeLessThanOrEqual(frame.height + 26);
  });
  it('of all heads fit', () => {
    const grid = layoutGrid(6, 8, 300, 300, 1000);
    expect(grid.width).toBeLessThanOrEqual(1000);
    expect(grid.tiles).toHaveLength(48);
    expect(new Set(grid.tiles.map((tile) => `${tile.x} ${tile.y}`)).size).toBe(48);
  });
});

describe('small things', () => {
  it('numbers are short', () => {
    expect([0, 0.12345, -1.5, 12.345, 123.45, 1e-7, null, 1234567].map((value) => short(value))).toEqual([
      '0.000',
      '0.123',
      '−1.500',
      '12.35',
      '123.5',
      '1.0e−7',
      '–',
      '1.2e+6',
    ]);
    expect([0, Math.log(0.5), Math.log(0.001), null].map(percent)).toEqual(['100 %', '50 %', '< 1 %', '–']);
  });
  it('arrow keys stay in their grid', () => {
    expect(
      ['ArrowRight', 'ArrowDown', 'ArrowLeft', 'ArrowUp', 'End', 'Home', 'x'].map((key) => nextIndex(key, 4, 9, 3)),
    ).toEqual([5, 7, 3, 1, 8, 0, 4]);
    expect(nextIndex('ArrowUp', 1, 9, 3)).toBe(1);
  });
  it('curves follow their points', () => {
    const chart = layoutChart({ width: 200, height: 100, x: [0, 10], y: extent([0, 1]) });
    expect(curvePath(chart, [0, 10], [0, 1])).toBe(
      `M${chart.x(0)},${round(chart.y(0))}L${chart.x(10)},${round(chart.y(1))}`,
    );
  });
  it('codes are reordered and joined', () => {
    expect(columnOrder(5, 'halves')).toEqual([0, 2, 4, 1, 3]);
    expect([...reorder([[1, 2, 3, 4]], columnOrder(4, 'halves')).values]).toEqual([1, 3, 2, 4]);
    expect(
      join(
        [[1, 2]],
        [
          [10, 20],
          [30, 40],
        ],
        'add',
      ),
    ).toEqual([[11, 22]]);
    expect(join([[1, 2]], [[10, 20]], 'concat')).toEqual([[1, 2, 10, 20]]);
  });
});

const round = (value: number) => Math.round(value * 1000) / 1000;
