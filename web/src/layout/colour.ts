/** Colours: one ramp for weights, one for numbers of either sign, one colour for each head; all safe for the colourblind. */

export type Ramp = Uint8ClampedArray; // 256 colours of red, green, blue

export interface Palette {
  dark: boolean;
  weights: Ramp; // 0 is the paper, 1 the strongest
  signed: Ramp; // the middle is the paper
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
// After Okabe and Ito, darker or lighter where a thin line would be lost on the paper.
const HEADS = {
  light: ['#0072b2', '#d55e00', '#008f68', '#b4559a', '#c08600', '#2f97d4', '#7a5bd0', '#77661a'],
  dark: ['#4db1ec', '#ff8f42', '#2fcb9e', '#e796c3', '#f3c04b', '#8fd3fa', '#b39cff', '#d3c25c'],
};

export function palette(dark: boolean): Palette {
  const shade = dark ? 'dark' : 'light';
  return { dark, weights: ramp(WEIGHTS[shade]), signed: ramp(SIGNED[shade]), heads: HEADS[shade] };
}

export function headColour(colours: Palette, head: number): string {
  return colours.heads[head % colours.heads.length];
}

/** Gives the place on a ramp of a weight from 0 to 1; small weights are lifted so that they can be seen. */
export function weightPlace(weight: number): number {
  return Math.round(255 * Math.sqrt(Math.min(1, Math.max(0, weight))));
}

/** Gives the place on a signed ramp of a number between -most and most. */
export function signedPlace(value: number, most: number): number {
  return Math.round(127.5 + 127.5 * Math.max(-1, Math.min(1, value / (most || 1))));
}

export function css(colours: Ramp, place: number): string {
  return `rgb(${colours[3 * place]} ${colours[3 * place + 1]} ${colours[3 * place + 2]})`;
}

/** Tells whether dark ink reads better than light ink on a colour. */
export function wantsDarkInk(colours: Ramp, place: number): boolean {
  const [r, g, b] = [0, 1, 2].map((i) => linear(colours[3 * place + i] / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.22;
}

/** Blends colours evenly to the eye, in Oklab. */
export function ramp(stops: string[]): Ramp {
  const labs = stops.map((stop) => toLab(fromHex(stop)));
  const made = new Uint8ClampedArray(256 * 3);
  for (let i = 0; i < 256; i++) {
    const place = (i / 255) * (labs.length - 1);
    const left = Math.min(Math.floor(place), labs.length - 2);
    const mixed = labs[left].map((value, j) => value + (place - left) * (labs[left + 1][j] - value)) as Lab;
    made.set(fromLab(mixed), 3 * i);
  }
  return made;
}

function fromHex(hex: string): Lab {
  return [1, 3, 5].map((start) => parseInt(hex.slice(start, start + 2), 16) / 255) as Lab;
}

function linear(c: number): number {
  return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
}

// Björn Ottosson, "A perceptual color space for image processing", 2020: the matrices of both ways.
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
