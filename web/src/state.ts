/** What the reader has chosen: one object, mirrored in the address so that a view can be shared. */

export const VIEWS = [
  'translate',
  'attention',
  'beam',
  'positions',
  'regression',
  'steps',
  'write',
  'answers',
  'studies',
] as const;
export const LANGUAGES = ['auto', 'en', 'zh'] as const;
export const THEMES = ['auto', 'light', 'dark'] as const;
export const UNITS = ['word', 'piece'] as const;
export const KINDS = ['encoder', 'decoder', 'cross'] as const;
export const FORMS = ['lines', 'all', 'one'] as const;
export const SCALES = ['same', 'own'] as const;
export const ORDERS = ['interleaved', 'halves'] as const;
export const JOINS = ['add', 'concat'] as const;
export const COLUMNS = ['variant', 'bleu', 'perplexity', 'speed', 'parameters', 'part'] as const;
export const CURVES = ['bleu', 'loss'] as const;

export type ViewName = (typeof VIEWS)[number];
export type KindName = (typeof KINDS)[number];
export type Unit = (typeof UNITS)[number];
export type Form = (typeof FORMS)[number];
export type Column = (typeof COLUMNS)[number];
export type ScaleName = (typeof SCALES)[number];

export interface State {
  view: ViewName;
  lang: (typeof LANGUAGES)[number];
  theme: (typeof THEMES)[number];
  // the sentence, for all views that look at one
  text: string;
  model: string; // '': the first that the server has
  beam: number;
  prefix: string; // what the translation must begin with
  part: number; // of a text that was read in several
  node: number; // the hypothesis that is looked at; -1: the best
  unit: Unit;
  from: string; // 'best': heads that align; 'all' heads; or those of one layer
  pins: number[]; // output words or pieces that stay marked
  // attention
  kind: KindName;
  form: Form;
  layer: number;
  head: number;
  off: number[]; // heads that are switched off in the lines
  scale: ScaleName; // colours from 0 to 1 in all maps, or up to the largest weight of each
  compare: boolean;
  text2: string; // '': the same text
  model2: string; // '': the same model
  // beam
  dropped: boolean; // draw also what the search gave up
  // positions
  scheme: string;
  length: number;
  width: number;
  base: number;
  order: (typeof ORDERS)[number];
  join: (typeof JOINS)[number];
  shift: number;
  // kernel regression
  seed: number;
  noise: number;
  points: number;
  w: number;
  // step by step
  walk: number; // layer
  walkHead: number;
  stage: number;
  // write
  prompt: string;
  pieces: number; // to write at most
  temperature: number; // 0 takes the likeliest piece each time
  chance: number; // the seed
  writer: string; // '': the first that the server has
  piece: number; // the one whose looks are shown; -1: the newest while it is written
  writeFrom: string; // 'all' heads, those of one layer, or one as layer:head
  // answers
  question: string;
  context: string;
  reader: string; // '': the first that the server has
  asked: number; // the word of the question whose looks are shown; -1: none
  answerFrom: string; // 'all' heads, those of one layer, or one as layer:head
  // studies
  study: number; // which of those that the server has
  sort: Column;
  rising: boolean;
  curve: (typeof CURVES)[number];
  marked: string; // the variant whose curve is drawn beside the baseline's; '': the best
}

export const START: Readonly<State> = {
  view: 'translate',
  lang: 'auto',
  theme: 'auto',
  text: '介绍一下西安',
  model: '',
  beam: 5,
  prefix: '',
  part: 0,
  node: -1,
  unit: 'word',
  from: 'best',
  pins: [],
  kind: 'cross',
  form: 'lines',
  layer: 0,
  head: 0,
  off: [],
  scale: 'same',
  compare: false,
  text2: '',
  model2: '',
  dropped: false,
  scheme: 'sinusoidal',
  length: 64,
  width: 32,
  base: 10000,
  order: 'interleaved',
  join: 'add',
  shift: 1,
  seed: 0,
  noise: 0.5,
  points: 50,
  w: 1,
  walk: 0,
  walkHead: 0,
  stage: 0,
  prompt: '',
  pieces: 200,
  temperature: 0.8,
  chance: 0,
  writer: '',
  piece: -1,
  writeFrom: 'all',
  question: '',
  context: '',
  reader: '',
  asked: -1,
  answerFrom: 'all',
  study: 0,
  sort: 'bleu',
  rising: false,
  curve: 'bleu',
  marked: '',
};

const CHOICES: Partial<Record<keyof State, readonly string[]>> = {
  view: VIEWS,
  lang: LANGUAGES,
  theme: THEMES,
  unit: UNITS,
  kind: KINDS,
  form: FORMS,
  scale: SCALES,
  order: ORDERS,
  join: JOINS,
  sort: COLUMNS,
  curve: CURVES,
};

/** Numbers outside of these are not taken from an address. */
const RANGES: Partial<Record<keyof State, [least: number, most: number]>> = {
  beam: [1, 64],
  length: [8, 512],
  width: [4, 256],
  base: [2, 1e6],
  shift: [1, 64],
  noise: [0, 2],
  points: [2, 200],
  w: [0.05, 50],
  pieces: [1, 400],
  temperature: [0, 2],
};

type Value = string | number | boolean | number[];

/** Writes what differs from the start, in the form of an address's last part. */
export function toAddress(state: State): string {
  const parts = new URLSearchParams();
  for (const key of Object.keys(START) as (keyof State)[]) {
    const value = state[key] as Value;
    if (String(value) !== String(START[key])) parts.set(key, Array.isArray(value) ? value.join('.') : String(value));
  }
  return parts.toString();
}

/** Reads it again; what is unknown or makes no sense stays as at the start. */
export function fromAddress(address: string): State {
  const state: State = structuredClone(START) as State;
  for (const [key, text] of new URLSearchParams(address.replace(/^#/, ''))) {
    if (!(key in START)) continue;
    const name = key as keyof State;
    const value = parsed(name, text);
    if (value !== undefined) Object.assign(state, { [name]: value });
  }
  return state;
}

function parsed(name: keyof State, text: string): Value | undefined {
  const start = START[name] as Value;
  if (typeof start === 'string') return !CHOICES[name] || CHOICES[name].includes(text) ? text : undefined;
  if (typeof start === 'boolean') return text === 'true';
  if (Array.isArray(start))
    return text
      .split('.')
      .filter(Boolean)
      .map(Number)
      .filter((n) => Number.isInteger(n) && n >= 0);
  const value = Number(text);
  const [least, most] = RANGES[name] ?? [-1, 1e6];
  return text !== '' && value >= least && value <= most ? value : undefined;
}
