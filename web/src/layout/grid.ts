/** The heatmaps of all layers × heads. */

export interface Tile {
  layer: number;
  head: number;
  x: number;
  y: number;
}

export interface Grid {
  tiles: Tile[];
  tileWidth: number;
  tileHeight: number;
  left: number; // margin for the layer numbers
  top: number; // margin for the head numbers
  width: number;
  height: number;
}

const GAP = 8;
const LEFT = 34;
const TOP = 26;

/** Place the tiles; their size does not depend on the length of the sentence. */
export function layoutGrid(layers: number, heads: number, queries: number, keys: number, width: number): Grid {
  const available = (width - LEFT - GAP * (heads - 1)) / heads;
  const tileWidth = Math.max(22, Math.min(170, Math.floor(available)));
  const aspect = Math.min(1.6, Math.max(0.5, queries / keys));
  const tileHeight = Math.max(18, Math.round(tileWidth * aspect));
  const tiles: Tile[] = [];
  for (let layer = 0; layer < layers; layer++)
    for (let head = 0; head < heads; head++)
      tiles.push({ layer, head, x: LEFT + head * (tileWidth + GAP), y: TOP + layer * (tileHeight + GAP) });
  return {
    tiles,
    tileWidth,
    tileHeight,
    left: LEFT,
    top: TOP,
    width: LEFT + heads * (tileWidth + GAP) - GAP,
    height: TOP + layers * (tileHeight + GAP) - GAP,
  };
}
