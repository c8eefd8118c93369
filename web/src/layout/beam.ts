/** The tree of a search: a column for each step, a line for each hypothesis. */

import { linkHorizontal } from 'd3-shape';
import type { Node, Tree } from '../trace';
import type { Measure } from './sentence';

export interface Spot {
  node: Node;
  x: number;
  y: number;
  width: number;
  text: string;
  share: string; // its probability
  shareX: number; // where that is written
  best: boolean; // on the path of the best hypothesis
  chosen: boolean; // on the path of the one that is looked at
  dropped: number; // continuations of it that were given up
}

export interface Branch {
  from: number; // number of the node before, or -1
  to: number;
  path: string;
  best: boolean;
  chosen: boolean;
  fate: string;
}

export interface BeamPicture {
  spots: Spot[];
  branches: Branch[];
  width: number;
  height: number;
}

const ROW = 34;
const SMALL_ROW = 18; // of what was given up
const GAP = 24; // between columns, for the branches
export const SPOT_HEIGHT = 24;
export const SHARE_SIZE = 11;
const PAD = 8;

export interface BeamWish {
  tree: Tree;
  chosen: number; // node
  pruned: boolean; // draw pruned nodes too
  label: (piece: string) => string;
  share: (gain: number | null) => string;
  size: number;
}

const draw = linkHorizontal<unknown, [number, number]>();

export function setBeam(wish: BeamWish, measure: Measure): BeamPicture {
  const shown = wish.tree.nodes.filter((node) => wish.pruned || node.fate !== 'dropped');
  if (!shown.length) return { spots: [], branches: [], width: 0, height: 0 };
  const [best, chosen] = [new Set(wish.tree.best_path), new Set(pathTo(wish.tree, wish.chosen))];
  const widths = columnWidths(shown, wish, measure);
  const starts = widths.map((_, step) => GAP + widths.slice(0, step).reduce((sum, wide) => sum + wide + GAP, 0));
  const rows = rowsOf(shown, wish.tree);
  const lost = countDropped(wish.tree);
  const spots = shown.map((node) => ({
    node,
    x: starts[node.step],
    y: rows.get(node.number)!,
    width: spotWidth(node, wish, measure),
    text: wish.label(node.piece),
    share: wish.share(node.gain),
    shareX: starts[node.step] + PAD + measure(wish.label(node.piece), wish.size) + 6,
    best: best.has(node.number),
    chosen: chosen.has(node.number),
    dropped: lost.get(node.number) ?? 0,
  }));
  const places = new Map(spots.map((spot) => [spot.node.number, spot]));
  const root = { x: 8, y: rows.get(-1)! };
  const branches = spots.map((spot) => {
    const before = places.get(spot.node.parent);
    const source: [number, number] = before ? [before.x + before.width, before.y] : [root.x, root.y];
    const path = draw({ source, target: [spot.x, spot.y] }) ?? '';
    return {
      from: spot.node.parent,
      to: spot.node.number,
      path,
      best: spot.best,
      chosen: spot.chosen,
      fate: spot.node.fate,
    };
  });
  const last = widths.length - 1;
  const lowest = Math.max(...spots.map((spot) => spot.y));
  return { spots, branches, width: starts[last] + widths[last] + 8, height: lowest + ROW / 2 + 4 };
}

/** Gives the nodes from the first to this one. */
export function pathTo(tree: Tree, number: number): number[] {
  const path: number[] = [];
  for (let at = number; at >= 0; at = tree.nodes[at].parent) path.push(at);
  return path.reverse();
}

function columnWidths(shown: Node[], wish: BeamWish, measure: Measure): number[] {
  const widths: number[] = [];
  for (const node of shown) {
    widths[node.step] = Math.max(widths[node.step] ?? 0, spotWidth(node, wish, measure));
  }
  return widths;
}

function spotWidth(node: Node, wish: BeamWish, measure: Measure): number {
  return 2 * PAD + measure(wish.label(node.piece), wish.size) + 6 + measure(wish.share(node.gain), SHARE_SIZE);
}

/**
 * Gives each node its height: the best continuation stands level with what it continues, so that a hypothesis reads as
 * a line; the others find the highest free place below, those that part last first.
 */
function rowsOf(shown: Node[], tree: Tree): Map<number, number> {
  const children = childrenOf(shown, tree);
  const rows = new Map<number, number>();
  const free: number[] = []; // for each step the height from which on its column is free
  const height = (node: Node) => (node.fate === 'dropped' ? SMALL_ROW : ROW);
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

/** Gives the continuations of each node: those of the best hypothesis first, then kept ones, then by likelihood. */
function childrenOf(shown: Node[], tree: Tree): Map<number, Node[]> {
  const children = new Map<number, Node[]>();
  for (const node of shown) children.set(node.parent, [...(children.get(node.parent) ?? []), node]);
  const best = new Set(tree.best_path);
  const rank = (node: Node) => (best.has(node.number) ? 0 : node.fate === 'dropped' ? 2 : 1);
  for (const list of children.values()) list.sort((a, b) => rank(a) - rank(b) || (b.gain ?? 0) - (a.gain ?? 0));
  return children;
}

function countDropped(tree: Tree): Map<number, number> {
  const counts = new Map<number, number>();
  for (const node of tree.nodes)
    if (node.fate === 'dropped') counts.set(node.parent, (counts.get(node.parent) ?? 0) + 1);
  return counts;
}
