/** The page's font, and the width of a text in it. */

import type { Measure } from '../layout/sentence';

/** System fonts, also for Chinese: nothing is loaded. */
export const FAMILY = [
  "'Inter', system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', 'Noto Sans', 'PingFang SC', 'Hiragino Sans GB'",
  "'Microsoft YaHei', 'Noto Sans CJK SC', 'Noto Sans SC', 'WenQuanYi Micro Hei', sans-serif",
].join(', ');

let context: CanvasRenderingContext2D | null = null;

export const measure: Measure = (text, size) => {
  context ??= document.createElement('canvas').getContext('2d');
  if (!context) return text.length * size * 0.6;
  context.font = `${size}px ${FAMILY}`;
  return context.measureText(text).width;
};
