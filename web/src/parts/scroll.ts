/** Scroll the container of an element so that the element is centred, if it is active. */

export function centreIf(active: boolean) {
  return (element: Element) => {
    const container = element.parentElement;
    if (!active || !container || container.scrollWidth <= container.clientWidth) return;
    const [box, frame] = [element.getBoundingClientRect(), container.getBoundingClientRect()];
    container.scrollLeft += box.x + box.width / 2 - frame.x - frame.width / 2;
  };
}
