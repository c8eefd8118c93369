/** Brings an element into sight, inside what scrolls around it. */

export function near(wanted: boolean) {
  return (element: Element) => {
    const around = element.parentElement;
    if (!wanted || !around || around.scrollWidth <= around.clientWidth) return;
    const [mine, room] = [element.getBoundingClientRect(), around.getBoundingClientRect()];
    around.scrollLeft += mine.x + mine.width / 2 - room.x - room.width / 2;
  };
}
