/** A picture on the page becomes a file: SVG, PNG, or the whole view as HTML. */

import type { Saved } from '../trace';
import { paintNow } from './draw';

const KEPT = [
  'fill', 'fill-opacity', 'stroke', 'stroke-width', 'stroke-opacity', 'stroke-dasharray', 'stroke-linecap', 'opacity',
  'font-size', 'font-family', 'font-weight', 'text-anchor', 'dominant-baseline', 'paint-order',
]; // prettier-ignore

const EDGE = 12; // of paper around a picture

/** Writes the canvases and drawings of a frame into one SVG that needs no style sheet. */
export function toSvg(frame: Element): string {
  const found = [...frame.querySelectorAll<HTMLCanvasElement | SVGSVGElement>('canvas, svg')];
  const boxes = found.map((part) => part.getBoundingClientRect()); // whole, also where a part of it is scrolled away
  const [left, top] = [Math.min(...boxes.map((box) => box.left)), Math.min(...boxes.map((box) => box.top))];
  const width = Math.ceil(Math.max(...boxes.map((box) => box.right)) - left) + 2 * EDGE;
  const height = Math.ceil(Math.max(...boxes.map((box) => box.bottom)) - top) + 2 * EDGE;
  const parts = found.map((part, i) => written(part, boxes[i], boxes[i].left - left + EDGE, boxes[i].top - top + EDGE));
  const paper = getComputedStyle(frame).getPropertyValue('--card').trim() || '#ffffff';
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}">` +
    `<rect width="100%" height="100%" fill="${paper}"/>${parts.join('')}</svg>`
  );
}

function written(part: HTMLCanvasElement | SVGSVGElement, box: DOMRect, x: number, y: number): string {
  if (part instanceof HTMLCanvasElement) {
    paintNow(part);
    const place = `x="${x}" y="${y}" width="${box.width}" height="${box.height}"`;
    return `<image ${place} preserveAspectRatio="none" href="${part.toDataURL('image/png')}"/>`;
  }
  const copy = part.cloneNode(true) as SVGSVGElement;
  dress(part, copy);
  for (const unsaved of copy.querySelectorAll('[data-unsaved]')) unsaved.remove();
  return `<g transform="translate(${x} ${y})">${new XMLSerializer().serializeToString(copy)}</g>`;
}

/** Gives each element of a copy the looks of the one it was copied from. */
function dress(from: Element, to: Element): void {
  const looks = getComputedStyle(from);
  for (const name of KEPT) {
    const value = looks.getPropertyValue(name);
    if (value) to.setAttribute(name, value);
  }
  to.removeAttribute('class');
  to.removeAttribute('style');
  for (let i = 0; i < from.children.length; i++) dress(from.children[i], to.children[i]);
}

/** Draws an SVG in twice its size. */
export async function toPng(svg: string): Promise<Blob> {
  const picture = new Image();
  picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await picture.decode();
  const canvas = document.createElement('canvas');
  canvas.width = 2 * picture.width;
  canvas.height = 2 * picture.height;
  canvas.getContext('2d')!.drawImage(picture, 0, 0, canvas.width, canvas.height);
  return new Promise((made, failed) =>
    canvas.toBlob((blob) => (blob ? made(blob) : failed(new Error('the picture could not be rendered')))),
  );
}

export const MARK = '<!--regard-view-->';

/** Puts runs into the empty page; the address says what is shown when it opens. */
export function toHtml(page: string, saved: Saved, address: string): string {
  const json = JSON.stringify(saved).replace(/</g, '\\u003c');
  const words = address.replace(/&/g, '&amp;').replace(/"/g, '&quot;').replace(/</g, '&lt;');
  const data = `<script type="application/json" id="regard-view" data-address="${words}">${json}</script>`;
  return page.replace(MARK, () => data);
}

export function download(name: string, content: Blob | string, type = 'text/plain'): void {
  const address = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  const link = document.createElement('a');
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
