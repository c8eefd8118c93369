/** A sentence above its translation, each broken into lines, and curves between their words. */

import { curveBumpY, link as makeLink } from 'd3-shape';
import { type Matrix, at } from './matrix';

export type Measure = (text: string, size: number) => number;

export interface Box {
  index: number;
  text: string;
  x: number;
  y: number;
  width: number;
  height: number;
  special: boolean; // the start or the end of the sentence, not a word
}

export interface Sentences {
  source: Box[];
  target: Box[];
  size: number; // of the font
  width: number;
  height: number;
  oneLine: boolean; // both fit in one line
}

export interface Curve {
  source: number;
  target: number;
  weight: number;
  path: string;
}

const PADDING = 10; // inside a box, left and right
const GAP = 6; // between boxes
const SIZES = [30, 26, 22, 19, 17];
const DISTANCE = { oneLine: 104, manyLines: 56 }; // between the two sentences

export interface Texts {
  source: string[];
  target: string[];
  special: string[]; // labels that are not words
}

/** Use the largest font that keeps both sentences on one line, or else break them into lines. */
export function layoutSentences(texts: Texts, width: number, measure: Measure): Sentences {
  const size = SIZES.find(
    (each) => lineWidth(texts.source, each, measure) <= width && lineWidth(texts.target, each, measure) <= width,
  );
  const fontSize = size ?? (width < 480 ? 17 : 19);
  const source = breakLines(texts.source, texts.special, fontSize, width, measure);
  const target = breakLines(texts.target, texts.special, fontSize, width, measure);
  const below = bottom(source) + (size ? DISTANCE.oneLine : DISTANCE.manyLines);
  for (const box of target) box.y += below;
  const oneLine = Boolean(size);
  return { source, target, size: fontSize, width, height: Math.max(bottom(target), below + 2 * fontSize), oneLine };
}

function lineWidth(texts: string[], size: number, measure: Measure): number {
  return texts.reduce((sum, text) => sum + measure(text, size) + 2 * PADDING + GAP, -GAP);
}

/** Break words into centred lines. */
function breakLines(texts: string[], specialLabels: string[], size: number, width: number, measure: Measure): Box[] {
  const height = Math.round(size * 1.7);
  const lines: Box[][] = [[]];
  let x = 0;
  texts.forEach((text, index) => {
    const special = specialLabels.includes(text);
    const boxWidth = Math.min(width, measure(text, special ? size * 0.6 : size) + 2 * PADDING);
    if (x > 0 && x + boxWidth > width) {
      lines.push([]);
      x = 0;
    }
    lines[lines.length - 1].push({
      index,
      text,
      x,
      y: (lines.length - 1) * (height + GAP),
      width: boxWidth,
      height,
      special,
    });
    x += boxWidth + GAP;
  });
  for (const line of lines) centre(line, width);
  return lines.flat();
}

function centre(line: Box[], width: number): void {
  const last = line[line.length - 1];
  if (!last) return;
  const margin = (width - last.x - last.width) / 2;
  for (const box of line) box.x += margin;
}

function bottom(boxes: Box[]): number {
  return boxes.reduce((max, box) => Math.max(max, box.y + box.height), 0);
}

const link = makeLink<unknown, [number, number]>(curveBumpY);

/** Return the curves of the selected output words, or of all, with at least this weight, weakest first. */
export function layoutCurves(layout: Sentences, weights: Matrix, selected: number[], minWeight: number): Curve[] {
  const targets = selected.length ? selected : layout.target.map((box) => box.index);
  const curves: Curve[] = [];
  for (const t of targets) {
    const to = layout.target[t];
    if (!to || to.special) continue;
    for (const from of layout.source) {
      const weight = at(weights, t, from.index);
      if (weight < minWeight) continue;
      const ends: [[number, number], [number, number]] = [
        [from.x + from.width / 2, from.y + from.height],
        [to.x + to.width / 2, to.y],
      ];
      curves.push({ source: from.index, target: t, weight, path: link({ source: ends[0], target: ends[1] }) ?? '' });
    }
  }
  return curves.sort((a, b) => a.weight - b.weight);
}

/** Return the largest weight of each source word over the selected output words. */
export function maxWeights(weights: Matrix, selected: number[]): number[] {
  return Array.from({ length: weights.columns }, (_, s) => Math.max(0, ...selected.map((t) => at(weights, t, s))));
}
