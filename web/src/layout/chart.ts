/** Curves over two axes. */

import { type ScaleLinear, scaleLinear } from 'd3-scale';
import { line as makeLine } from 'd3-shape';

export interface Chart {
  x: ScaleLinear<number, number>;
  y: ScaleLinear<number, number>;
  xTicks: { at: number; text: string }[];
  yTicks: { at: number; text: string }[];
  left: number;
  top: number;
  right: number;
  bottom: number;
  width: number;
  height: number;
}

export interface ChartWish {
  width: number;
  height: number;
  x: [number, number];
  y: [number, number];
  room?: number; // for the numbers at the left
}

export function setChart({ width, height, x, y, room = 40 }: ChartWish): Chart {
  const [left, top, right, bottom] = [room, 22, width - 10, height - 40];
  const across = scaleLinear(x, [left, right]);
  const up = scaleLinear(y[0] === y[1] ? [y[0] - 1, y[1] + 1] : y, [bottom, top]);
  return {
    x: across,
    y: up,
    xTicks: ticks(across, Math.max(3, Math.floor(width / 90))),
    yTicks: ticks(up, Math.max(3, Math.floor(height / 56))),
    left,
    top,
    right,
    bottom,
    width,
    height,
  };
}

function ticks(scale: ScaleLinear<number, number>, count: number) {
  const text = scale.tickFormat(count);
  return scale.ticks(count).map((value) => ({ at: scale(value), text: text(value) }));
}

export function curvePath(chart: Chart, xs: ArrayLike<number>, ys: ArrayLike<number>): string {
  const points = Array.from({ length: ys.length }, (_, i): [number, number] => [chart.x(xs[i]), chart.y(ys[i])]);
  return makeLine()(points) ?? '';
}

/** Gives the least and the largest number, a little apart. */
export function span(...lists: ArrayLike<number>[]): [number, number] {
  let [least, most] = [Infinity, -Infinity];
  for (const list of lists)
    for (let i = 0; i < list.length; i++) {
      least = Math.min(least, list[i]);
      most = Math.max(most, list[i]);
    }
  const rest = (most - least || 1) * 0.06;
  return [least - rest, most + rest];
}
