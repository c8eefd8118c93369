/** A sentence above its translation, each broken into lines, and the curves between their words. */

import { link as makeLink, curveBumpY } from 'd3-shape';
import { type Matrix, at } from './matrix';

export type Measure = (text: string, size: number) => number;

export interface Box {
  index: number;
  text: string;
  x: number;
  y: number;
  width: number;
  height: number;
  mark: boolean; // no word of the sentence: its start or its end
}

export interface Sentences {
  source: Box[];
  target: Box[];
  size: number; // of the letters
  width: number;
  height: number;
  oneLine: boolean; // both fit in one line
}

export interface Curve {
  source: number;
  target: number;
  share: number;
  path: string;
}

const PAD = 10; // inside a box, left and right
const GAP = 6; // between boxes
const SIZES = [30, 26, 22, 19, 17];
const ROOM = { one: 104, many: 56 }; // between the two sentences

export interface Texts {
  source: string[];
  target: string[];
  marks: string[]; // labels that are no words
}

/** Sets both sentences in the largest letters that keep them in one line, or else in several lines. */
export function setSentences(texts: Texts, width: number, measure: Measure): Sentences {
  const size = SIZES.find(
    (each) => lineWidth(texts.source, each, measure) <= width && lineWidth(texts.target, each, measure) <= width,
  );
  const used = size ?? (width < 480 ? 17 : 19);
  const source = setLines(texts.source, texts.marks, used, width, measure);
  const target = setLines(texts.target, texts.marks, used, width, measure);
  const room = size ? ROOM.one : ROOM.many;
  const below = bottom(source) + room;
  for (const box of target) box.y += below;
  const oneLine = Boolean(size);
  return { source, target, size: used, width, height: Math.max(bottom(target), below + 2 * used), oneLine };
}

function lineWidth(texts: string[], size: number, measure: Measure): number {
  return texts.reduce((sum, text) => sum + measure(text, size) + 2 * PAD + GAP, -GAP);
}

/** Breaks words into lines, each line in the middle. */
function setLines(texts: string[], marks: string[], size: number, width: number, measure: Measure): Box[] {
  const height = Math.round(size * 1.7);
  const lines: Box[][] = [[]];
  let x = 0;
  texts.forEach((text, index) => {
    const mark = marks.includes(text);
    const wide = Math.min(width, measure(text, mark ? size * 0.6 : size) + 2 * PAD);
    if (x > 0 && x + wide > width) {
      lines.push([]);
      x = 0;
    }
    lines[lines.length - 1].push({ index, text, x, y: (lines.length - 1) * (height + GAP), width: wide, height, mark });
    x += wide + GAP;
  });
  for (const line of lines) centre(line, width);
  return lines.flat();
}

function centre(line: Box[], width: number): void {
  const last = line[line.length - 1];
  if (!last) return;
  const rest = (width - last.x - last.width) / 2;
  for (const box of line) box.x += rest;
}

function bottom(boxes: Box[]): number {
  return boxes.reduce((most, box) => Math.max(most, box.y + box.height), 0);
}

const curve = makeLink<unknown, [number, number]>(curveBumpY);

/** Draws the links of the chosen output words, or of all, that have at least this share, the weakest first. */
export function setCurves(placed: Sentences, shares: Matrix, chosen: number[], least: number): Curve[] {
  const wanted = chosen.length ? chosen : placed.target.map((box) => box.index);
  const curves: Curve[] = [];
  for (const t of wanted) {
    const to = placed.target[t];
    if (!to || to.mark) continue;
    for (const from of placed.source) {
      const share = at(shares, t, from.index);
      if (share < least) continue;
      const ends: [[number, number], [number, number]] = [
        [from.x + from.width / 2, from.y + from.height],
        [to.x + to.width / 2, to.y],
      ];
      curves.push({ source: from.index, target: t, share, path: curve({ source: ends[0], target: ends[1] }) ?? '' });
    }
  }
  return curves.sort((a, b) => a.share - b.share);
}

/** Gives what the chosen words looked at together: for each source word the largest share. */
export function shade(shares: Matrix, chosen: number[]): number[] {
  return Array.from({ length: shares.columns }, (_, s) => Math.max(0, ...chosen.map((t) => at(shares, t, s))));
}
