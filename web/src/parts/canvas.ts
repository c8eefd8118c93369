/** Painting on a canvas, at the resolution of the screen. */

export type Paint = (width: number, height: number) => Uint8ClampedArray<ArrayBuffer> | Uint8ClampedArray;

/** Attach to a canvas: paint it, again whenever size or paint change. */
export function paintCanvas(width: number, height: number, paint: Paint) {
  return (canvas: HTMLCanvasElement) => {
    const density = Math.min(3, window.devicePixelRatio || 1);
    const [w, h] = [Math.max(1, Math.round(width * density)), Math.max(1, Math.round(height * density))];
    canvas.width = w;
    canvas.height = h;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    canvas.getContext('2d')?.putImageData(new ImageData(new Uint8ClampedArray(paint(w, h)), w, h), 0, 0);
    canvas.dataset.painted = 'true'; // for tests that wait for the picture
  };
}

const waiting = new WeakMap<HTMLCanvasElement, () => void>();

/** Paint a canvas that is not yet visible. */
export function paintNow(canvas: HTMLCanvasElement): void {
  waiting.get(canvas)?.();
}

/** Attach to a canvas: paint it only once it is near the viewport. */
export function paintWhenVisible(width: number, height: number, paint: Paint) {
  return (canvas: HTMLCanvasElement) => {
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const observer = new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && now(), {
      rootMargin: '1500px',
    });
    const now = () => {
      observer.disconnect();
      waiting.delete(canvas);
      paintCanvas(width, height, paint)(canvas);
    };
    waiting.set(canvas, now);
    observer.observe(canvas);
    return () => observer.disconnect();
  };
}
