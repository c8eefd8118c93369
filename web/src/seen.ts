/** A run as the layouts take it: what the server told, its weights unpacked. */

import type { Kind, View } from './trace';
import type { KindName } from './state';

/** All heads of one kind; byte b stands for the weight (b / 255)². */
export interface Heads {
  kind: KindName;
  nLayers: number;
  nHeads: number;
  nQueries: number;
  nKeys: number;
  bytes: Uint8Array; // [layer][head][query][key]
  entropy: (number | null)[][]; // [layer][head]
}

export interface Seen {
  view: View;
  kinds: Partial<Record<KindName, Heads>>;
}

/** The weight that each byte stands for. */
export const WEIGHT = Float32Array.from({ length: 256 }, (_, byte) => (byte / 255) ** 2);

/** Unpacks all weights of a run. */
export async function see(view: View): Promise<Seen> {
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
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

async function inflate(packed: Uint8Array<ArrayBuffer>): Promise<Uint8Array> {
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate-raw'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
