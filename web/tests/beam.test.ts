import { describe, expect, it } from 'vitest';
import { SPOT_HEIGHT, type Spot, pathTo, setBeam } from '../src/layout/beam';
import { percent } from '../src/layout/labels';
import { measure, view } from './recorded';

const { tree } = view;
const draw = (dropped: boolean) =>
  setBeam({ tree, chosen: tree.best, pruned: dropped, label: (piece) => piece, share: percent, size: 14 }, measure);
const kept = tree.nodes.filter((node) => node.fate !== 'dropped');

describe('the tree', () => {
  it('shows what was kept, or everything', () => {
    expect(draw(false).spots).toHaveLength(kept.length);
    expect(draw(true).spots).toHaveLength(tree.nodes.length);
    expect(draw(true).branches).toHaveLength(tree.nodes.length);
  });

  it.each([false, true])('has no two pieces in one place (with the dropped: %s)', (dropped) => {
    const { spots, width, height } = draw(dropped);
    const high = (spot: Spot) => (spot.node.fate === 'dropped' ? 16 : SPOT_HEIGHT);
    spots.forEach((a, i) =>
      spots.slice(i + 1).forEach((b) => {
        const apart =
          a.x + a.width <= b.x || b.x + b.width <= a.x || Math.abs(a.y - b.y) >= (high(a) + high(b)) / 2 - 1e-6;
        expect(apart, `${a.text} and ${b.text}`).toBe(true);
      }),
    );
    for (const spot of spots) {
      expect(spot.x + spot.width).toBeLessThanOrEqual(width);
      expect(spot.y + SPOT_HEIGHT / 2).toBeLessThanOrEqual(height);
    }
  });

  it('goes from left to right', () => {
    const places = new Map(draw(true).spots.map((spot) => [spot.node.number, spot]));
    for (const spot of places.values())
      if (spot.node.parent >= 0)
        expect(spot.x).toBeGreaterThan(places.get(spot.node.parent)!.x + places.get(spot.node.parent)!.width);
  });

  it('has the best hypothesis in one line, at the top', () => {
    const best = draw(false).spots.filter((spot) => spot.best);
    expect(best.map((spot) => spot.text)).toEqual(view.target.pieces);
    expect(new Set(best.map((spot) => spot.y)).size).toBe(1);
    expect(best[0].y).toBe(Math.min(...draw(false).spots.map((spot) => spot.y)));
  });

  it('counts what was given up', () => {
    const lost = draw(false).spots.reduce((sum, spot) => sum + spot.dropped, 0);
    expect(lost).toBeLessThanOrEqual(tree.nodes.length - kept.length);
    expect(lost).toBeGreaterThan(0);
  });

  it('knows the way to each piece', () => {
    expect(pathTo(tree, tree.best)).toEqual(tree.best_path);
    expect(pathTo(tree, -1)).toEqual([]);
  });
});
