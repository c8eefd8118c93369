/** Line charts: scales, ticks and paths. */

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

export interface ChartOptions {
  width: number;
  height: number;
  x: [number, number];
  y: [number, number];
  left?: number; // margin for the labels of the y-axis
}

export function layoutChart({ width, height, x, y, left = 40 }: ChartOptions): Chart {
  const [top, right, bottom] = [22, width - 10, height - 40];
  const xScale = scaleLinear(x, [left, right]);
  const yScale = scaleLinear(y[0] === y[1] ? [y[0] - 1, y[1] + 1] : y, [bottom, top]);
  return {
    x: xScale,
    y: yScale,
    xTicks: ticks(xScale, Math.max(3, Math.floor(width / 90))),
    yTicks: ticks(yScale, Math.max(3, Math.floor(height / 56))),
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

/** Return the smallest and the largest number, with a margin. */
export function extent(...lists: ArrayLike<number>[]): [number, number] {
  let [min, max] = [Infinity, -Infinity];
  for (const list of lists)
    for (let i = 0; i < list.length; i++) {
      min = Math.min(min, list[i]);
      max = Math.max(max, list[i]);
    }
  const margin = (max - min || 1) * 0.06;
  return [min - margin, max + margin];
}
