/** The tree of a beam search: one column per step, one line per hypothesis. */

import { linkHorizontal } from 'd3-shape';
import type { Node, Tree } from '../trace';
import type { Measure } from './sentence';

export interface NodeBox {
  node: Node;
  x: number;
  y: number; // the middle
  width: number;
  text: string;
  probability: string;
  probabilityX: number;
  best: boolean; // on the path of the best hypothesis
  selected: boolean; // on the path of the selected hypothesis
  nPruned: number; // pruned continuations
}

export interface Edge {
  from: number; // number of the parent, or -1
  to: number;
  path: string;
  best: boolean;
  selected: boolean;
  fate: string;
}

export interface BeamLayout {
  boxes: NodeBox[];
  edges: Edge[];
  width: number;
  height: number;
}

const ROW = 34;
const PRUNED_ROW = 18;
const GAP = 24; // between columns, for the edges
export const NODE_HEIGHT = 24;
export const PROBABILITY_SIZE = 11;
const PADDING = 8;
const SPACE = 6; // between token and probability

export interface BeamOptions {
  tree: Tree;
  selected: number; // node
  pruned: boolean; // draw pruned nodes too
  label: (token: string) => string;
  probability: (logProb: number | null) => string;
  size: number; // of the font
}

const link = linkHorizontal<unknown, [number, number]>();

export function layoutBeam(options: BeamOptions, measure: Measure): BeamLayout {
  const { tree, label, probability, size } = options;
  const visible = tree.nodes.filter((node) => options.pruned || node.fate !== 'dropped');
  if (!visible.length) return { boxes: [], edges: [], width: 0, height: 0 };
  const [best, selected] = [new Set(tree.best_path), new Set(pathTo(tree, options.selected))];
  const widths = columnWidths(visible, options, measure);
  const starts = widths.map((_, step) => GAP + widths.slice(0, step).reduce((sum, width) => sum + width + GAP, 0));
  const rows = rowsOf(visible, tree);
  const pruned = countPruned(tree);
  const boxes = visible.map((node) => ({
    node,
    x: starts[node.step],
    y: rows.get(node.number)!,
    width: boxWidth(node, options, measure),
    text: label(node.piece),
    probability: probability(node.gain),
    probabilityX: starts[node.step] + PADDING + measure(label(node.piece), size) + SPACE,
    best: best.has(node.number),
    selected: selected.has(node.number),
    nPruned: pruned.get(node.number) ?? 0,
  }));
  const byNumber = new Map(boxes.map((box) => [box.node.number, box]));
  const root = { x: 8, y: rows.get(-1)! };
  const edges = boxes.map((box) => {
    const parent = byNumber.get(box.node.parent);
    const source: [number, number] = parent ? [parent.x + parent.width, parent.y] : [root.x, root.y];
    return {
      from: box.node.parent,
      to: box.node.number,
      path: link({ source, target: [box.x, box.y] }) ?? '',
      best: box.best,
      selected: box.selected,
      fate: box.node.fate,
    };
  });
  const last = widths.length - 1;
  const bottom = Math.max(...boxes.map((box) => box.y));
  return { boxes, edges, width: starts[last] + widths[last] + 8, height: bottom + ROW / 2 + 4 };
}

/** Return the numbers of the nodes from the first to this one. */
export function pathTo(tree: Tree, number: number): number[] {
  const path: number[] = [];
  for (let at = number; at >= 0; at = tree.nodes[at].parent) path.push(at);
  return path.reverse();
}

function columnWidths(visible: Node[], options: BeamOptions, measure: Measure): number[] {
  const widths: number[] = [];
  for (const node of visible) {
    widths[node.step] = Math.max(widths[node.step] ?? 0, boxWidth(node, options, measure));
  }
  return widths;
}

function boxWidth(node: Node, { label, probability, size }: BeamOptions, measure: Measure): number {
  const [token, percent] = [label(node.piece), probability(node.gain)];
  return 2 * PADDING + measure(token, size) + SPACE + measure(percent, PROBABILITY_SIZE);
}

/**
 * Return the y of each node: the best continuation is level with its parent, so that a hypothesis reads as a line; the
 * others take the highest free row below, those that branch off last first.
 */
function rowsOf(visible: Node[], tree: Tree): Map<number, number> {
  const children = childrenOf(visible, tree);
  const rows = new Map<number, number>();
  const free: number[] = []; // for each step, the y below which its column is free
  const height = (node: Node) => (node.fate === 'dropped' ? PRUNED_ROW : ROW);
  const place = (first: Node, above: number) => {
    const line: Node[] = [];
    for (let node: Node | undefined = first; node; node = children.get(node.number)?.[0]) line.push(node);
    const y = Math.max(above, ...line.map((node) => free[node.step] ?? 0));
    for (const node of line) {
      rows.set(node.number, y + height(first) / 2);
      free[node.step] = y + height(node);
    }
    for (const node of line.reverse())
      for (const other of (children.get(node.number) ?? []).slice(1)) place(other, y + height(node));
  };
  for (const node of children.get(-1) ?? []) place(node, 0);
  rows.set(-1, rows.get(children.get(-1)?.[0]?.number ?? -1) ?? 0);
  return rows;
}

/** Return the children of each node: on the best path first, then the kept ones, then by probability. */
function childrenOf(visible: Node[], tree: Tree): Map<number, Node[]> {
  const children = new Map<number, Node[]>();
  for (const node of visible) children.set(node.parent, [...(children.get(node.parent) ?? []), node]);
  const best = new Set(tree.best_path);
  const rank = (node: Node) => (best.has(node.number) ? 0 : node.fate === 'dropped' ? 2 : 1);
  for (const list of children.values()) list.sort((a, b) => rank(a) - rank(b) || (b.gain ?? 0) - (a.gain ?? 0));
  return children;
}

function countPruned(tree: Tree): Map<number, number> {
  const counts = new Map<number, number>();
  for (const node of tree.nodes)
    if (node.fate === 'dropped') counts.set(node.parent, (counts.get(node.parent) ?? 0) + 1);
  return counts;
}
