/** Pixels onto a canvas, as many as the screen has. */

export type Paint = (width: number, height: number) => Uint8ClampedArray<ArrayBuffer> | Uint8ClampedArray;

/** Keeps a canvas painted: again when its size, the paint, or the screen's density changes. */
export function painted(width: number, height: number, paint: Paint) {
  return (canvas: HTMLCanvasElement) => {
    const dense = Math.min(3, window.devicePixelRatio || 1);
    const [w, h] = [Math.max(1, Math.round(width * dense)), Math.max(1, Math.round(height * dense))];
    canvas.width = w;
    canvas.height = h;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    canvas.getContext('2d')?.putImageData(new ImageData(new Uint8ClampedArray(paint(w, h)), w, h), 0, 0);
    canvas.dataset.painted = 'true'; // for who waits for the picture
  };
}

const waiting = new WeakMap<HTMLCanvasElement, () => void>();

/** Paints a canvas that still waits to be seen. */
export function paintNow(canvas: HTMLCanvasElement): void {
  waiting.get(canvas)?.();
}

/** Paints a canvas only once it comes near the window. */
export function paintedWhenSeen(width: number, height: number, paint: Paint) {
  return (canvas: HTMLCanvasElement) => {
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const watcher = new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && now(), {
      rootMargin: '1500px',
    });
    const now = () => {
      watcher.disconnect();
      waiting.delete(canvas);
      painted(width, height, paint)(canvas);
    };
    waiting.set(canvas, now);
    watcher.observe(canvas);
    return () => watcher.disconnect();
  };
}
