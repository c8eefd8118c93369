/** All layers × heads as small maps. */

export interface TilePlace {
  layer: number;
  head: number;
  x: number;
  y: number;
}

export interface Grid {
  tiles: TilePlace[];
  tileWidth: number;
  tileHeight: number;
  left: number; // room for the names of layers
  top: number; // room for the names of heads
  width: number;
  height: number;
}

const GAP = 8;
const LEFT = 34;
const TOP = 26;

/** Gives each map its place; long sentences get no larger tiles, only finer ones. */
export function setGrid(layers: number, heads: number, queries: number, keys: number, width: number): Grid {
  const room = (width - LEFT - GAP * (heads - 1)) / heads;
  const tileWidth = Math.max(22, Math.min(170, Math.floor(room)));
  const shape = Math.min(1.6, Math.max(0.5, queries / keys));
  const tileHeight = Math.max(18, Math.round(tileWidth * shape));
  const tiles: TilePlace[] = [];
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
