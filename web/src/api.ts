/** The one place that fetches: the server's answers by the names of what they hold. */

import type {
  Answered,
  Failure,
  Head,
  Models,
  Positions,
  Readers,
  Regression,
  Studies,
  View,
  Walk,
  Writers,
  Written,
  WrotePiece,
} from './trace';

export interface Ask {
  text: string;
  model?: string;
  beam: number;
  prefix: string[];
}

export interface Prompt {
  prompt: string;
  pieces: number;
  temperature: number;
  seed: number;
  writer?: string;
}

export interface Asked {
  question: string;
  context: string;
  reader?: string;
}

export interface HeadPlace {
  kind: string;
  layer: number;
  head: number;
}

/** Where data come from: a server, or what lies in a file or a notebook. */
export interface Api {
  live: boolean; // new texts can be asked for
  models(): Promise<Models>;
  write(ask: Ask, heard: (line: Written) => void, signal: AbortSignal): Promise<void>;
  trace(ask: Ask, signal: AbortSignal): Promise<View>;
  beside(ask: Ask, signal: AbortSignal): Promise<View>; // the run to compare with
  traceOf(view: View, path: { part: number; node?: number }, signal: AbortSignal): Promise<View>;
  head(view: View, place: HeadPlace, signal: AbortSignal): Promise<Head | null>;
  positions(wish: Record<string, string | number>, signal: AbortSignal): Promise<Positions>;
  regression(wish: Record<string, string | number>, signal: AbortSignal): Promise<Regression>;
  walk(wish: Record<string, string | number>, signal: AbortSignal): Promise<Walk>;
  writers(signal: AbortSignal): Promise<Writers>;
  goOn(prompt: Prompt, heard: (line: WrotePiece) => void, signal: AbortSignal): Promise<void>;
  written(prompt: Prompt, signal: AbortSignal): Promise<View>;
  readers(signal: AbortSignal): Promise<Readers>;
  answer(asked: Asked, signal: AbortSignal): Promise<Answered>;
  studies(signal: AbortSignal): Promise<Studies>;
  emptyPage(): Promise<string>; // the page as one file, without data
}

/** Asks the server that the page came from. */
export function serverApi(): Api {
  return {
    live: true,
    models: () => get('models', {}),
    write: (ask, heard, signal) => streamed('translate/stream', ask, heard, signal),
    trace: (ask, signal) => post('trace', ask, signal),
    beside: (ask, signal) => post('trace', ask, signal),
    traceOf: (view, path, signal) => get(`trace/${view.id}`, path, signal),
    head: (view, place, signal) => get(`trace/${view.id}/head`, { ...place, part: view.part, node: view.leaf }, signal),
    positions: (wish, signal) => get('positions', wish, signal),
    regression: (wish, signal) => get('regression', wish, signal),
    walk: (wish, signal) => get('steps', wish, signal),
    writers: (signal) => get('writers', {}, signal),
    goOn: (prompt, heard, signal) => streamed('generate/stream', prompt, heard, signal),
    written: (prompt, signal) => post('generate', prompt, signal),
    readers: (signal) => get('readers', {}, signal),
    answer: (asked, signal) => post('answer', asked, signal),
    studies: (signal) => get('studies', {}, signal),
    emptyPage: async () => (await answered(await fetch('view.html'))).text(),
  };
}

async function get<T>(path: string, query: Record<string, unknown>, signal?: AbortSignal): Promise<T> {
  const words = new URLSearchParams(Object.entries(query).map(([key, value]) => [key, String(value)]));
  const answer = await fetch(words.size ? `${path}?${words}` : path, { signal });
  return (await answered(answer)).json() as Promise<T>;
}

async function post<T>(path: string, body: unknown, signal: AbortSignal): Promise<T> {
  return (await answered(await send(path, body, signal))).json() as Promise<T>;
}

function send(path: string, body: unknown, signal: AbortSignal): Promise<Response> {
  const headers = { 'content-type': 'application/json' };
  return fetch(path, { method: 'POST', headers, body: JSON.stringify(body), signal });
}

async function answered(answer: Response): Promise<Response> {
  if (answer.ok) return answer;
  const failure = (await answer.json().catch(() => null)) as Failure | null;
  throw new Refused(failure?.error ?? `${answer.status} ${answer.statusText}`, answer.status);
}

/** What the server says when it cannot do what was asked. */
export class Refused extends Error {
  constructor(
    reason: string,
    readonly status: number,
  ) {
    super(reason);
  }
}

/** Hears what is written line by line. */
async function streamed<T>(path: string, body: unknown, heard: (line: T) => void, signal: AbortSignal): Promise<void> {
  const answer = await answered(await send(path, body, signal));
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const lines = (rest + part.value).split('\n');
    rest = lines.pop()!;
    for (const line of lines.filter(Boolean)) heard(JSON.parse(line) as T);
  }
  if (rest) heard(JSON.parse(rest) as T);
}
