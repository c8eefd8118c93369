/** What the reader has selected, view by view, mirrored in the URL so that a view can be shared. */

export const VIEWS = [
  'translate',
  'attention',
  'beam',
  'positions',
  'regression',
  'steps',
  'generate',
  'answers',
  'studies',
] as const;
export const UNITS = ['word', 'token'] as const;
export const KINDS = ['encoder', 'decoder', 'cross'] as const;
export const FORMS = ['lines', 'all', 'one'] as const;
export const SCALES = ['same', 'own'] as const;
export const ORDERS = ['interleaved', 'halves'] as const;
export const JOINS = ['add', 'concat'] as const;
export const COLUMNS = ['variant', 'bleu', 'perplexity', 'speed', 'parameters', 'part'] as const;
export const METRICS = ['bleu', 'loss'] as const;

export type KindName = (typeof KINDS)[number];
export type Unit = (typeof UNITS)[number];
export type Form = (typeof FORMS)[number];
export type Column = (typeof COLUMNS)[number];
export type ScaleName = (typeof SCALES)[number];

/** One value of the state: its default, and how it is read from a URL (undefined if invalid) and written to one. */
interface Field<T> {
  initial: T;
  parse: (text: string) => T | undefined;
  format: (value: T) => string;
}

const string = (initial = ''): Field<string> => ({ initial, parse: (text) => text, format: (value) => value });

const flag = (): Field<boolean> => ({ initial: false, parse: (text) => text === 'true', format: String });

const number = (initial: number, min = -1, max = 1e6): Field<number> => ({
  initial,
  parse: (text) => (text !== '' && Number(text) >= min && Number(text) <= max ? Number(text) : undefined),
  format: String,
});

const indices = (): Field<number[]> => ({
  initial: [],
  parse: (text) =>
    text
      .split('.')
      .filter(Boolean)
      .map(Number)
      .filter((n) => Number.isInteger(n) && n >= 0),
  format: (value) => value.join('.'),
});

const oneOf = <T extends string>(values: readonly T[], initial: NoInfer<T>): Field<T> => ({
  initial,
  parse: (text) => values.find((value) => value === text),
  format: (value) => value,
});

const FIELDS = {
  page: {
    view: oneOf(VIEWS, 'translate'),
    lang: oneOf(['auto', 'en', 'zh'], 'auto'),
    theme: oneOf(['auto', 'light', 'dark'], 'auto'),
    unit: oneOf(UNITS, 'word'), // attention between words, or between the model's tokens
    scale: oneOf(SCALES, 'same'), // heatmap colours from 0 to 1, or from 0 to the largest weight of each
  },
  // the sentence and its translation, for the views translate, attention, beam and steps
  translation: {
    text: string('介绍一下西安'),
    model: string(), // '': the server's default
    beam: number(5, 1, 64),
    prefix: string(), // tokens that the translation must begin with
    part: number(0), // which segment of a long text
    node: number(-1), // the selected hypothesis; -1: the best
    heads: string('best'), // cross-attention heads: 'best' (alignment heads), 'all', or a layer
    pins: indices(), // pinned output words or tokens
  },
  attention: {
    kind: oneOf(KINDS, 'cross'),
    form: oneOf(FORMS, 'lines'),
    layer: number(0),
    head: number(0),
    off: indices(), // heads whose lines are hidden
    compare: flag(),
    text2: string(), // '': the same text
    model2: string(), // '': the same model
  },
  beam: {
    pruned: flag(), // also draw pruned hypotheses
  },
  positions: {
    scheme: string('sinusoidal'),
    length: number(64, 8, 512),
    width: number(32, 4, 256),
    base: number(10000, 2, 1e6),
    order: oneOf(ORDERS, 'interleaved'),
    join: oneOf(JOINS, 'add'),
    shift: number(1, 1, 64),
  },
  regression: {
    seed: number(0),
    noise: number(0.5, 0, 2),
    points: number(50, 2, 200),
    w: number(1, 0.05, 50),
  },
  steps: {
    layer: number(0),
    head: number(0),
    stage: number(0),
  },
  generate: {
    prompt: string(),
    maxTokens: number(200, 1, 400),
    temperature: number(0.8, 0, 2), // 0: greedy
    seed: number(0),
    model: string(), // '': the server's default
    token: number(-1), // whose attention is shown; -1: the newest during generation
    heads: string('all'), // 'all', a layer, or one head as layer:head
  },
  answers: {
    question: string(),
    context: string(),
    model: string(), // '': the server's default
    word: number(-1), // the question word whose attention is shown; -1: none
    heads: string('all'), // 'all', a layer, or one head as layer:head
  },
  studies: {
    study: number(0), // index in the server's list
    sort: oneOf(COLUMNS, 'bleu'),
    ascending: flag(),
    curve: oneOf(METRICS, 'bleu'),
    variant: string(), // plotted against the baseline; '': the best
  },
};

type Fields = typeof FIELDS;
type Value<F> = F extends Field<infer T> ? T : never;
export type State = { [V in keyof Fields]: { [F in keyof Fields[V]]: Value<Fields[V][F]> } };

/** Parameters of earlier versions, so that links made then still open. */
const OLD_NAMES: Record<string, string> = {
  from: 'heads',
  dropped: 'pruned',
  walk: 'steps.layer',
  walkHead: 'steps.head',
  pieces: 'maxTokens',
  chance: 'generate.seed',
  writer: 'generate.model',
  piece: 'token',
  writeFrom: 'generate.heads',
  reader: 'answers.model',
  asked: 'word',
  answerFrom: 'answers.heads',
  rising: 'ascending',
  marked: 'variant',
};
const OLD_VALUES: Record<string, string> = { 'view=write': 'generate', 'unit=piece': 'token' };

type AnyState = Record<string, Record<string, unknown>>;

/** URL parameters: the field's name, or view.name where an earlier view has a field of that name. */
const PARAMETERS = new Map<string, { view: string; name: string; field: Field<unknown> }>();
for (const [view, fields] of Object.entries(FIELDS))
  for (const [name, field] of Object.entries(fields))
    PARAMETERS.set(PARAMETERS.has(name) ? `${view}.${name}` : name, { view, name, field: field as Field<unknown> });

export function initialState(): State {
  const state: AnyState = {};
  for (const { view, name, field } of PARAMETERS.values())
    (state[view] ??= {})[name] = Array.isArray(field.initial) ? [...field.initial] : field.initial;
  return state as State;
}

/** Write what differs from the defaults, as the fragment of a URL. */
export function toFragment(state: State): string {
  const parameters = new URLSearchParams();
  for (const [key, { view, name, field }] of PARAMETERS) {
    const text = field.format((state as AnyState)[view][name]);
    if (text !== field.format(field.initial)) parameters.set(key, text);
  }
  return parameters.toString();
}

/** Read a fragment; unknown parameters and invalid values are ignored. */
export function fromFragment(fragment: string): State {
  const state = initialState();
  for (const [key, text] of new URLSearchParams(fragment.replace(/^#/, ''))) {
    const parameter = PARAMETERS.get(OLD_NAMES[key] ?? key);
    const value = parameter?.field.parse(OLD_VALUES[`${key}=${text}`] ?? text);
    if (parameter && value !== undefined) (state as AnyState)[parameter.view][parameter.name] = value;
  }
  return state;
}

/** Assign field by field, so that only what changed is recomputed. */
export function assignState(state: State, next: State): void {
  for (const view of Object.keys(next) as (keyof State)[]) Object.assign(state[view], next[view]);
}
