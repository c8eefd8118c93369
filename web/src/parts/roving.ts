/** Roving tabindex: one tab stop for a grid of buttons, arrow keys move inside it. */

const STEPS: Record<string, [number, number]> = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
};

/** Return the index an arrow key leads to in a grid with this many columns. */
export function nextIndex(key: string, index: number, count: number, columns: number): number {
  if (key === 'Home') return 0;
  if (key === 'End') return count - 1;
  const step = STEPS[key];
  if (!step) return index;
  const next = index + step[0] + step[1] * columns;
  return next < 0 || next >= count ? index : next;
}

/** Attach to a grid: arrow keys move the focus among its [data-cell] elements. */
export function roving(columns: () => number) {
  return (grid: Element) => {
    const cells = () => [...grid.querySelectorAll<HTMLElement | SVGElement>('[data-cell]')];
    const setTabStop = () => {
      const all = cells();
      const one = all.find((cell) => cell.tabIndex === 0) ?? all[0];
      for (const cell of all) cell.tabIndex = cell === one ? 0 : -1;
    };
    const onKey = (event: Event) => {
      const { key } = event as KeyboardEvent;
      if (!(key in STEPS) && key !== 'Home' && key !== 'End') return;
      const all = cells();
      const index = all.indexOf(event.target as HTMLElement);
      if (index < 0) return;
      event.preventDefault();
      const next = nextIndex(key, index, all.length, columns());
      all[index].tabIndex = -1;
      all[next].tabIndex = 0;
      all[next].focus();
    };
    const observer = new MutationObserver(setTabStop);
    observer.observe(grid, { childList: true, subtree: true });
    grid.addEventListener('keydown', onKey);
    setTabStop();
    return () => {
      observer.disconnect();
      grid.removeEventListener('keydown', onKey);
    };
  };
}
