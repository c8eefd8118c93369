/** Save a picture as SVG or PNG, or the whole view as HTML; copy a link. */

import type { Saved } from '../trace';
import { paintNow } from './canvas';

const STYLES = [
  'fill', 'fill-opacity', 'stroke', 'stroke-width', 'stroke-opacity', 'stroke-dasharray', 'stroke-linecap', 'opacity',
  'font-size', 'font-family', 'font-weight', 'text-anchor', 'dominant-baseline', 'paint-order',
]; // prettier-ignore

const MARGIN = 12;

/** Write the canvases and SVGs of a frame into one SVG that needs no style sheet. */
export function toSvg(frame: Element): string {
  const parts = [...frame.querySelectorAll<HTMLCanvasElement | SVGSVGElement>('canvas, svg')];
  const boxes = parts.map((part) => part.getBoundingClientRect()); // also of what is scrolled out of view
  const [left, top] = [Math.min(...boxes.map((box) => box.left)), Math.min(...boxes.map((box) => box.top))];
  const width = Math.ceil(Math.max(...boxes.map((box) => box.right)) - left) + 2 * MARGIN;
  const height = Math.ceil(Math.max(...boxes.map((box) => box.bottom)) - top) + 2 * MARGIN;
  const images = parts.map((part, i) =>
    serialize(part, boxes[i], boxes[i].left - left + MARGIN, boxes[i].top - top + MARGIN),
  );
  const background = getComputedStyle(frame).getPropertyValue('--card').trim() || '#ffffff';
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}">` +
    `<rect width="100%" height="100%" fill="${background}"/>${images.join('')}</svg>`
  );
}

function serialize(part: HTMLCanvasElement | SVGSVGElement, box: DOMRect, x: number, y: number): string {
  if (part instanceof HTMLCanvasElement) {
    paintNow(part);
    const area = `x="${x}" y="${y}" width="${box.width}" height="${box.height}"`;
    return `<image ${area} preserveAspectRatio="none" href="${part.toDataURL('image/png')}"/>`;
  }
  const copy = part.cloneNode(true) as SVGSVGElement;
  copyStyles(part, copy);
  for (const unsaved of copy.querySelectorAll('[data-unsaved]')) unsaved.remove();
  return `<g transform="translate(${x} ${y})">${new XMLSerializer().serializeToString(copy)}</g>`;
}

/** Copy the computed styles of each element. */
function copyStyles(from: Element, to: Element): void {
  const style = getComputedStyle(from);
  for (const name of STYLES) {
    const value = style.getPropertyValue(name);
    if (value) to.setAttribute(name, value);
  }
  to.removeAttribute('class');
  to.removeAttribute('style');
  for (let i = 0; i < from.children.length; i++) copyStyles(from.children[i], to.children[i]);
}

/** Render an SVG at twice its size. */
export async function toPng(svg: string): Promise<Blob> {
  const picture = new Image();
  picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await picture.decode();
  const canvas = document.createElement('canvas');
  canvas.width = 2 * picture.width;
  canvas.height = 2 * picture.height;
  canvas.getContext('2d')!.drawImage(picture, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve, reject) =>
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error('the picture could not be rendered')))),
  );
}

export const MARK = '<!--regard-view-->';

/** Put runs into the empty page; the fragment says what is shown when it opens. */
export function toHtml(page: string, saved: Saved, fragment: string): string {
  const json = JSON.stringify(saved).replace(/</g, '\\u003c');
  const escaped = fragment.replace(/&/g, '&amp;').replace(/"/g, '&quot;').replace(/</g, '&lt;');
  const data = `<script type="application/json" id="regard-view" data-address="${escaped}">${json}</script>`;
  return page.replace(MARK, () => data);
}

export function download(name: string, content: Blob | string, type = 'text/plain'): void {
  const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** Copy a text, and tell whether that worked; browsers keep the clipboard from pages that came over plain HTTP. */
export async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = Object.assign(document.createElement('textarea'), { value: text });
    document.body.append(field);
    field.select();
    const copied = document.execCommand('copy');
    field.remove();
    return copied;
  }
}
