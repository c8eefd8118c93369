/** One tab stop for a grid of buttons; the arrow keys move inside it. */

const STEPS: Record<string, [number, number]> = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
};

/** Gives where an arrow key leads in a grid of so many columns. */
export function nextPlace(key: string, place: number, count: number, columns: number): number {
  if (key === 'Home') return 0;
  if (key === 'End') return count - 1;
  const step = STEPS[key];
  if (!step) return place;
  const next = place + step[0] + step[1] * columns;
  return next < 0 || next >= count ? place : next;
}

/** Lets the arrow keys move the focus among the children that can take it. */
export function roving(columns: () => number) {
  return (grid: Element) => {
    const cells = () => [...grid.querySelectorAll<HTMLElement | SVGElement>('[data-cell]')];
    const settle = () => {
      const all = cells();
      const one = all.find((cell) => cell.tabIndex === 0) ?? all[0];
      for (const cell of all) cell.tabIndex = cell === one ? 0 : -1;
    };
    const move = (event: Event) => {
      const { key } = event as KeyboardEvent;
      if (!(key in STEPS) && key !== 'Home' && key !== 'End') return;
      const all = cells();
      const place = all.indexOf(event.target as HTMLElement);
      if (place < 0) return;
      event.preventDefault();
      const next = nextPlace(key, place, all.length, columns());
      all[place].tabIndex = -1;
      all[next].tabIndex = 0;
      all[next].focus();
    };
    const watcher = new MutationObserver(settle);
    watcher.observe(grid, { childList: true, subtree: true });
    grid.addEventListener('keydown', move);
    settle();
    return () => {
      watcher.disconnect();
      grid.removeEventListener('keydown', move);
    };
  };
}
