/** Matrices as pixels. */

import { type Palette, type Ramp, signedIndex, weightIndex } from './colour';
import type { Matrix } from './matrix';

/**
 * Paint bytes of √w.
 *
 * Where cells are smaller than pixels, a pixel shows the largest weight under it, so that no peak is lost.
 */
export function paintBytes(
  bytes: Uint8Array,
  rows: number,
  columns: number,
  width: number,
  height: number,
  ramp: Ramp,
) {
  const downsample = rows > height || columns > width;
  const cells = downsample ? pool(bytes, rows, columns, width, height) : bytes;
  const [r, c] = downsample ? [Math.min(rows, height), Math.min(columns, width)] : [rows, columns];
  return paintIndices(cells, r, c, width, height, ramp);
}

/** Scale bytes so that the largest gets the strongest colour. */
export function stretch(bytes: Uint8Array): Uint8Array {
  let max = 1;
  for (const byte of bytes) if (byte > max) max = byte;
  return bytes.map((byte) => Math.round((255 * byte) / max));
}

/** The range of the colours: weights from 0 to `max`, or signed numbers from -`limit` to `limit`. */
export interface Range {
  max?: number;
  limit?: number;
}

export function paintMatrix(
  m: Matrix,
  width: number,
  height: number,
  colours: Palette,
  { max = 1, limit }: Range = {},
) {
  const indices = new Uint8Array(m.values.length);
  for (let i = 0; i < indices.length; i++)
    indices[i] = limit === undefined ? weightIndex(m.values[i] / max) : signedIndex(m.values[i], limit);
  const ramp = limit === undefined ? colours.weights : colours.signed;
  if (limit !== undefined) return paintIndices(indices, m.rows, m.columns, width, height, ramp);
  return paintBytes(indices, m.rows, m.columns, width, height, ramp);
}

/** Return the largest byte under each pixel. */
export function pool(bytes: Uint8Array, rows: number, columns: number, width: number, height: number): Uint8Array {
  const [h, w] = [Math.min(rows, height), Math.min(columns, width)];
  const pooled = new Uint8Array(h * w);
  for (let i = 0; i < rows; i++) {
    const y = Math.floor((i * h) / rows);
    for (let j = 0; j < columns; j++) {
      const pixel = y * w + Math.floor((j * w) / columns);
      const byte = bytes[i * columns + j];
      if (byte > pooled[pixel]) pooled[pixel] = byte;
    }
  }
  return pooled;
}

function paintIndices(indices: Uint8Array, rows: number, columns: number, width: number, height: number, ramp: Ramp) {
  const pixels = new Uint8ClampedArray(width * height * 4);
  const line = new Uint8ClampedArray(width * 4);
  let painted = -1;
  for (let y = 0; y < height; y++) {
    const i = Math.floor((y * rows) / height);
    if (i !== painted) paintLine(line, indices, i * columns, columns, width, ramp);
    painted = i;
    pixels.set(line, y * width * 4);
  }
  return pixels;
}

function paintLine(
  line: Uint8ClampedArray,
  indices: Uint8Array,
  start: number,
  columns: number,
  width: number,
  ramp: Ramp,
) {
  for (let x = 0; x < width; x++) {
    const colour = 3 * indices[start + Math.floor((x * columns) / width)];
    line[4 * x] = ramp[colour];
    line[4 * x + 1] = ramp[colour + 1];
    line[4 * x + 2] = ramp[colour + 2];
    line[4 * x + 3] = 255;
  }
}
