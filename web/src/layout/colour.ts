/** Colour-blind safe colours: a ramp for weights, a diverging ramp for signed numbers, a colour for each head. */

export type Ramp = Uint8ClampedArray; // 256 colours of red, green, blue

export interface Palette {
  dark: boolean;
  weights: Ramp; // from the background to the strongest colour
  signed: Ramp; // the background in the middle
  heads: string[];
}

type Lab = [number, number, number];

const WEIGHTS = {
  light: ['#ffffff', '#bfd2f8', '#3f6ede', '#0b2474'],
  dark: ['#1b1e24', '#243f80', '#5b8bf2', '#eaf1ff'],
};
const SIGNED = {
  light: ['#8a3a00', '#e58a3c', '#fbfaf7', '#5a8ae8', '#0f3494'],
  dark: ['#ffc488', '#b8621c', '#1b1e24', '#3f6fd8', '#b9d0ff'],
};
// After Okabe and Ito, darker or lighter where a thin line would not stand out from the background.
const HEADS = {
  light: ['#0072b2', '#d55e00', '#008f68', '#b4559a', '#c08600', '#2f97d4', '#7a5bd0', '#77661a'],
  dark: ['#4db1ec', '#ff8f42', '#2fcb9e', '#e796c3', '#f3c04b', '#8fd3fa', '#b39cff', '#d3c25c'],
};

export function palette(dark: boolean): Palette {
  const theme = dark ? 'dark' : 'light';
  return { dark, weights: ramp(WEIGHTS[theme]), signed: ramp(SIGNED[theme]), heads: HEADS[theme] };
}

export function headColour(colours: Palette, head: number): string {
  return colours.heads[head % colours.heads.length];
}

/** Return the index on a ramp of a weight from 0 to 1; the square root makes small weights visible. */
export function weightIndex(weight: number): number {
  return Math.round(255 * Math.sqrt(Math.min(1, Math.max(0, weight))));
}

/** Return the index on a diverging ramp of a number from -max to max. */
export function signedIndex(value: number, max: number): number {
  return Math.round(127.5 + 127.5 * Math.max(-1, Math.min(1, value / (max || 1))));
}

export function css(colours: Ramp, index: number): string {
  return `rgb(${colours[3 * index]} ${colours[3 * index + 1]} ${colours[3 * index + 2]})`;
}

/** Tell whether dark text is more legible than light text on a colour. */
export function needsDarkText(colours: Ramp, index: number): boolean {
  const [r, g, b] = [0, 1, 2].map((i) => linear(colours[3 * index + i] / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.22;
}

/** Interpolate colours in Oklab, so that steps look even. */
export function ramp(stops: string[]): Ramp {
  const labs = stops.map((stop) => toLab(fromHex(stop)));
  const colours = new Uint8ClampedArray(256 * 3);
  for (let i = 0; i < 256; i++) {
    const position = (i / 255) * (labs.length - 1);
    const left = Math.min(Math.floor(position), labs.length - 2);
    const mixed = labs[left].map((value, j) => value + (position - left) * (labs[left + 1][j] - value)) as Lab;
    colours.set(fromLab(mixed), 3 * i);
  }
  return colours;
}

function fromHex(hex: string): Lab {
  return [1, 3, 5].map((start) => parseInt(hex.slice(start, start + 2), 16) / 255) as Lab;
}

function linear(c: number): number {
  return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
}

// Björn Ottosson, "A perceptual color space for image processing", 2020: conversion in both directions.
function toLab(rgb: Lab): Lab {
  const [r, g, b] = rgb.map(linear);
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
  ];
}

function fromLab([L, a, b]: Lab): Lab {
  const l = (L + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (L - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (L - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const rgb = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  return rgb.map((c) => 255 * (c <= 0.0031308 ? 12.92 * c : 1.055 * Math.max(c, 0) ** (1 / 2.4) - 0.055)) as Lab;
}
