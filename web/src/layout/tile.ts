/** Matrices become pixels. */

import { type Palette, type Ramp, signedPlace, weightPlace } from './colour';
import type { Matrix } from './matrix';

/**
 * Paints bytes of √w in a tile of so many pixels.
 *
 * Where cells are smaller than pixels the strongest of those under a pixel is drawn, so that no peak is lost.
 */
export function paintBytes(
  bytes: Uint8Array,
  rows: number,
  columns: number,
  width: number,
  height: number,
  ramp: Ramp,
) {
  const small = rows > height || columns > width;
  const drawn = small ? pool(bytes, rows, columns, width, height) : bytes;
  const [r, c] = small ? [Math.min(rows, height), Math.min(columns, width)] : [rows, columns];
  return paintPlaces(drawn, r, c, width, height, ramp);
}

/** Stretches bytes so that the largest has the strongest colour. */
export function stretched(bytes: Uint8Array): Uint8Array {
  let top = 1;
  for (const byte of bytes) if (byte > top) top = byte;
  return bytes.map((byte) => Math.round((255 * byte) / top));
}

/** How numbers become colours: weights from 0 to `top`, or numbers of either sign up to `most`. */
export interface Range {
  top?: number;
  most?: number;
}

export function paintMatrix(m: Matrix, width: number, height: number, colours: Palette, { top = 1, most }: Range = {}) {
  const places = new Uint8Array(m.values.length);
  for (let i = 0; i < places.length; i++)
    places[i] = most === undefined ? weightPlace(m.values[i] / top) : signedPlace(m.values[i], most);
  const ramp = most === undefined ? colours.weights : colours.signed;
  if (most !== undefined) return paintPlaces(places, m.rows, m.columns, width, height, ramp);
  return paintBytes(places, m.rows, m.columns, width, height, ramp);
}

/** Gives the largest byte under each pixel. */
export function pool(bytes: Uint8Array, rows: number, columns: number, width: number, height: number): Uint8Array {
  const [h, w] = [Math.min(rows, height), Math.min(columns, width)];
  const made = new Uint8Array(h * w);
  for (let i = 0; i < rows; i++) {
    const y = Math.floor((i * h) / rows);
    for (let j = 0; j < columns; j++) {
      const place = y * w + Math.floor((j * w) / columns);
      const byte = bytes[i * columns + j];
      if (byte > made[place]) made[place] = byte;
    }
  }
  return made;
}

function paintPlaces(places: Uint8Array, rows: number, columns: number, width: number, height: number, ramp: Ramp) {
  const pixels = new Uint8ClampedArray(width * height * 4);
  const line = new Uint8ClampedArray(width * 4);
  let painted = -1;
  for (let y = 0; y < height; y++) {
    const i = Math.floor((y * rows) / height);
    if (i !== painted) paintLine(line, places, i * columns, columns, width, ramp);
    painted = i;
    pixels.set(line, y * width * 4);
  }
  return pixels;
}

function paintLine(
  line: Uint8ClampedArray,
  places: Uint8Array,
  start: number,
  columns: number,
  width: number,
  ramp: Ramp,
) {
  for (let x = 0; x < width; x++) {
    const place = 3 * places[start + Math.floor((x * columns) / width)];
    line[4 * x] = ramp[place];
    line[4 * x + 1] = ramp[place + 1];
    line[4 * x + 2] = ramp[place + 2];
    line[4 * x + 3] = 255;
  }
}
