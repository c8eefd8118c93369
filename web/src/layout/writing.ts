/** What the pieces of a written text looked back at. */

import type { Wrote } from '../wrote';
import { headsNamed } from './answers';
import { headMatrix, meanMatrix, row } from './matrix';

/** Gives a piece as it is read: spaces and line breaks for their signs, nothing for the signs of start and end. */
export function read(piece: string): string {
  return piece === '<s>' || piece === '</s>' ? '' : piece.replaceAll('▁', ' ').replaceAll('⏎', '\n');
}

/** Gives how much each piece was looked at to say one: by all heads or some, of the whole run once it is there. */
export function lookedBack(wrote: Wrote, piece: number, from: string): number[] | null {
  const heads = wrote.seen?.kinds.decoder;
  if (heads && piece >= 0 && piece < heads.nQueries) {
    const { layer, head } = headsNamed(from, heads);
    const all = layer !== undefined && head !== undefined ? headMatrix(heads, layer, head) : meanMatrix(heads, layer);
    return placed(Array.from(row(all, piece)).slice(0, piece + 1), piece, wrote.pieces.length);
  }
  const looked = wrote.looks[piece];
  return looked?.length ? placed(looked, piece, wrote.pieces.length) : null;
}

/** Sets weights of what was read up to a piece to the pieces themselves; what begins the text is no piece. */
function placed(looked: number[], piece: number, count: number): number[] {
  const shares = new Array<number>(count).fill(0);
  looked.forEach((weight, i) => {
    const place = piece - looked.length + i; // the last is that of the piece before
    if (place >= 0) shares[place] = weight;
  });
  return shares;
}
