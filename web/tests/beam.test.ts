import { describe, expect, it } from 'vitest';
import { NODE_HEIGHT, type NodeBox, layoutBeam, pathTo } from '../src/layout/beam';
import { percent } from '../src/layout/labels';
import { measure, view } from './recorded';

const { tree } = view;
const draw = (pruned: boolean) =>
  layoutBeam({ tree, selected: tree.best, pruned, label: (token) => token, probability: percent, size: 14 }, measure);
const kept = tree.nodes.filter((node) => node.fate !== 'dropped');

describe('the tree', () => {
  it('shows the kept nodes, or all', () => {
    expect(draw(false).boxes).toHaveLength(kept.length);
    expect(draw(true).boxes).toHaveLength(tree.nodes.length);
    expect(draw(true).edges).toHaveLength(tree.nodes.length);
  });

  it.each([false, true])('has no overlapping nodes (with pruned ones: %s)', (pruned) => {
    const { boxes, width, height } = draw(pruned);
    const boxHeight = (box: NodeBox) => (box.node.fate === 'dropped' ? 16 : NODE_HEIGHT);
    boxes.forEach((a, i) =>
      boxes.slice(i + 1).forEach((b) => {
        const apart =
          a.x + a.width <= b.x ||
          b.x + b.width <= a.x ||
          Math.abs(a.y - b.y) >= (boxHeight(a) + boxHeight(b)) / 2 - 1e-6;
        expect(apart, `${a.text} and ${b.text}`).toBe(true);
      }),
    );
    for (const box of boxes) {
      expect(box.x + box.width).toBeLessThanOrEqual(width);
      expect(box.y + NODE_HEIGHT / 2).toBeLessThanOrEqual(height);
    }
  });

  it('goes from left to right', () => {
    const byNumber = new Map(draw(true).boxes.map((box) => [box.node.number, box]));
    for (const box of byNumber.values())
      if (box.node.parent >= 0)
        expect(box.x).toBeGreaterThan(byNumber.get(box.node.parent)!.x + byNumber.get(box.node.parent)!.width);
  });

  it('has the best hypothesis on one line, at the top', () => {
    const best = draw(false).boxes.filter((box) => box.best);
    expect(best.map((box) => box.text)).toEqual(view.target.pieces);
    expect(new Set(best.map((box) => box.y)).size).toBe(1);
    expect(best[0].y).toBe(Math.min(...draw(false).boxes.map((box) => box.y)));
  });

  it('counts pruned continuations', () => {
    const nPruned = draw(false).boxes.reduce((sum, box) => sum + box.nPruned, 0);
    expect(nPruned).toBeLessThanOrEqual(tree.nodes.length - kept.length);
    expect(nPruned).toBeGreaterThan(0);
  });

  it('knows the path to each node', () => {
    expect(pathTo(tree, tree.best)).toEqual(tree.best_path);
    expect(pathTo(tree, -1)).toEqual([]);
  });
});
