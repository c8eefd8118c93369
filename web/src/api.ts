/** The only file that fetches: one function per request to the server. */

import type {
  AnswerResponse,
  ErrorResponse,
  Head,
  Models,
  Positions,
  Readers,
  Regression,
  Studies,
  View,
  LayerSteps,
  Writers,
  TranslationUpdate,
  GeneratedToken,
} from './trace';

export interface TranslateRequest {
  text: string;
  model?: string;
  beam: number;
  prefix: string[];
}

export interface GenerateRequest {
  prompt: string;
  pieces: number;
  temperature: number;
  seed: number;
  writer?: string;
}

export interface AnswerRequest {
  question: string;
  context: string;
  reader?: string;
}

export interface HeadIndex {
  kind: string;
  layer: number;
  head: number;
}

export type Params = Record<string, string | number>;

/** Where data come from: a server, or the runs stored in a file or a notebook. */
export interface Api {
  live: boolean; // there is a server for new texts
  models(): Promise<Models>;
  streamTranslation(
    request: TranslateRequest,
    onLine: (line: TranslationUpdate) => void,
    signal: AbortSignal,
  ): Promise<void>;
  trace(request: TranslateRequest, signal: AbortSignal, id?: string | null): Promise<View>; // by its id if it has one
  comparison(request: TranslateRequest, signal: AbortSignal): Promise<View>; // the run to compare with
  hypothesis(view: View, path: { part: number; node?: number }, signal: AbortSignal): Promise<View>;
  head(view: View, index: HeadIndex, signal: AbortSignal): Promise<Head | null>;
  positions(params: Params, signal: AbortSignal): Promise<Positions>;
  regression(params: Params, signal: AbortSignal): Promise<Regression>;
  steps(params: Params, signal: AbortSignal): Promise<LayerSteps>;
  generators(signal: AbortSignal): Promise<Writers>;
  streamGeneration(
    request: GenerateRequest,
    onLine: (line: GeneratedToken) => void,
    signal: AbortSignal,
  ): Promise<void>;
  generate(request: GenerateRequest, signal: AbortSignal): Promise<View>;
  readers(signal: AbortSignal): Promise<Readers>;
  answer(request: AnswerRequest, signal: AbortSignal): Promise<AnswerResponse>;
  studies(signal: AbortSignal): Promise<Studies>;
  emptyPage(): Promise<string>; // the page as one file, without data
}

/** The server that the page came from. */
export function serverApi(): Api {
  return {
    live: true,
    models: () => get('models', {}),
    streamTranslation: (request, onLine, signal) => stream('translate/stream', request, onLine, signal),
    trace: (request, signal, id) => (id ? get(`trace/${id}`, {}, signal) : post('trace', request, signal)),
    comparison: (request, signal) => post('trace', request, signal),
    hypothesis: (view, path, signal) => get(`trace/${view.id}`, path, signal),
    head: (view, index, signal) => get(`trace/${view.id}/head`, { ...index, part: view.part, node: view.leaf }, signal),
    positions: (params, signal) => get('positions', params, signal),
    regression: (params, signal) => get('regression', params, signal),
    steps: (params, signal) => get('steps', params, signal),
    generators: (signal) => get('writers', {}, signal),
    streamGeneration: (request, onLine, signal) => stream('generate/stream', request, onLine, signal),
    generate: (request, signal) => post('generate', request, signal),
    readers: (signal) => get('readers', {}, signal),
    answer: (request, signal) => post('answer', request, signal),
    studies: (signal) => get('studies', {}, signal),
    emptyPage: async () => (await checkStatus(await fetch('view.html'))).text(),
  };
}

async function get<T>(path: string, params: Record<string, unknown>, signal?: AbortSignal): Promise<T> {
  const query = new URLSearchParams(Object.entries(params).map(([key, value]) => [key, String(value)]));
  const response = await fetch(query.size ? `${path}?${query}` : path, { headers: withKey({}), signal });
  return (await checkStatus(response)).json() as Promise<T>;
}

async function post<T>(path: string, body: unknown, signal: AbortSignal): Promise<T> {
  return (await checkStatus(await send(path, body, signal))).json() as Promise<T>;
}

function send(path: string, body: unknown, signal: AbortSignal): Promise<Response> {
  const headers = withKey({ 'content-type': 'application/json' });
  return fetch(path, { method: 'POST', headers, body: JSON.stringify(body), signal });
}

/** Add the key with which the page was opened, if any. */
function withKey(headers: Record<string, string>): Record<string, string> {
  const key = new URLSearchParams(location.search).get('api_key');
  return key ? { ...headers, authorization: `Bearer ${key}` } : headers;
}

async function checkStatus(response: Response): Promise<Response> {
  if (response.ok) return response;
  const failure = (await response.json().catch(() => null)) as ErrorResponse | null;
  throw new ApiError(failure?.error ?? `${response.status} ${response.statusText}`, response.status);
}

/** An error status of the server, with its message. */
export class ApiError extends Error {
  constructor(
    message: string,
    readonly status: number,
  ) {
    super(message);
  }
}

/** Read a stream of JSON lines. */
async function stream<T>(path: string, body: unknown, onLine: (line: T) => void, signal: AbortSignal): Promise<void> {
  const response = await checkStatus(await send(path, body, signal));
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (let chunk = await reader.read(); !chunk.done; chunk = await reader.read()) {
    const lines = (rest + chunk.value).split('\n');
    rest = lines.pop()!;
    for (const line of lines.filter(Boolean)) onLine(JSON.parse(line) as T);
  }
  if (rest) onLine(JSON.parse(rest) as T);
}
