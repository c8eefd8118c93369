/** A text that is being written: its pieces so far, what each looked at, and in the end the whole run. */

import type { Seen } from './seen';
import type { WrotePiece } from './trace';

export interface Wrote {
  pieces: string[];
  looks: number[][]; // of each piece; none for the prompt's
  seen: Seen | null;
}

export const NOTHING: Wrote = { pieces: [], looks: [], seen: null };

/** Adds a line of the stream. */
export function added(wrote: Wrote, line: WrotePiece): Wrote {
  return {
    pieces: [...wrote.pieces, ...line.pieces],
    looks: [...wrote.looks, ...line.pieces.map((_, i) => (i === line.pieces.length - 1 ? line.looked : []))],
    seen: null,
  };
}
