/** A run as the layouts use it: the server's view, with its attention weights unpacked. */

import type { Kind, View } from './trace';
import type { KindName } from './state';

/** All heads of one kind of attention; byte b encodes the weight (b / 255)². */
export interface Heads {
  kind: KindName;
  nLayers: number;
  nHeads: number;
  nQueries: number;
  nKeys: number;
  bytes: Uint8Array; // [layer][head][query][key]
  entropy: (number | null)[][]; // [layer][head], normalised; null: no such head
}

export interface Run {
  view: View;
  kinds: Partial<Record<KindName, Heads>>;
}

/** The weight that each byte encodes. */
export const WEIGHT = Float32Array.from({ length: 256 }, (_, byte) => (byte / 255) ** 2);

export async function unpackRun(view: View): Promise<Run> {
  const heads = await Promise.all(view.kinds.map(unpackKind));
  return { view, kinds: Object.fromEntries(heads.map((each) => [each.kind, each])) };
}

async function unpackKind(kind: Kind): Promise<Heads> {
  const bytes = await inflate(fromBase64(kind.weights));
  const expected = kind.n_layers * kind.n_heads * kind.n_queries * kind.n_keys;
  if (bytes.length !== expected) throw new Error(`${kind.kind}: expected ${expected} weights, got ${bytes.length}`);
  return {
    kind: kind.kind as KindName,
    nLayers: kind.n_layers,
    nHeads: kind.n_heads,
    nQueries: kind.n_queries,
    nKeys: kind.n_keys,
    bytes,
    entropy: kind.entropy,
  };
}

function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  const characters = atob(text);
  const bytes = new Uint8Array(characters.length);
  for (let i = 0; i < characters.length; i++) bytes[i] = characters.charCodeAt(i);
  return bytes;
}

async function inflate(compressed: Uint8Array<ArrayBuffer>): Promise<Uint8Array> {
  const stream = new Blob([compressed]).stream().pipeThrough(new DecompressionStream('deflate-raw'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
