import { describe, expect, it } from 'vitest';
import { type State, assignState, fromFragment, initialState, toFragment } from '../src/state';

const CHANGED: State = {
  page: { view: 'attention', lang: 'zh', theme: 'dark', unit: 'token', scale: 'own' },
  translation: {
    text: 'a & b = 介绍',
    model: 'en-zh',
    beam: 3,
    prefix: '▁In tro',
    part: 1,
    node: 17,
    heads: '1',
    pins: [2, 0],
  },
  attention: {
    kind: 'encoder',
    form: 'one',
    layer: 4,
    head: 5,
    off: [1, 3],
    compare: true,
    text2: '另一句#',
    model2: 'zh-en',
  },
  beam: { pruned: true },
  positions: { scheme: 'rotary', length: 100, width: 48, base: 500, order: 'halves', join: 'concat', shift: 3 },
  regression: { seed: 9, noise: 0.1, points: 20, w: 2.345 },
  steps: { layer: 2, head: 1, stage: 7 },
  generate: {
    prompt: 'ROMEO:\n',
    maxTokens: 50,
    temperature: 1.2,
    seed: 4,
    model: 'poems',
    token: 7,
    heads: '0:2',
  },
  answers: { question: 'Who?', context: 'Anna & Ben', model: 'qa', word: 2, heads: '1:3' },
  studies: { study: 1, sort: 'speed', ascending: true, curve: 'loss', variant: 'rotary & co' },
};

/** The same selection as a link of the first version wrote it. */
const OLD_LINK = new URLSearchParams({
  view: 'attention',
  lang: 'zh',
  theme: 'dark',
  text: 'a & b = 介绍',
  model: 'en-zh',
  beam: '3',
  prefix: '▁In tro',
  part: '1',
  node: '17',
  unit: 'piece',
  from: '1',
  pins: '2.0',
  kind: 'encoder',
  form: 'one',
  layer: '4',
  head: '5',
  off: '1.3',
  scale: 'own',
  compare: 'true',
  text2: '另一句#',
  model2: 'zh-en',
  dropped: 'true',
  scheme: 'rotary',
  length: '100',
  width: '48',
  base: '500',
  order: 'halves',
  join: 'concat',
  shift: '3',
  seed: '9',
  noise: '0.1',
  points: '20',
  w: '2.345',
  walk: '2',
  walkHead: '1',
  stage: '7',
  prompt: 'ROMEO:\n',
  pieces: '50',
  temperature: '1.2',
  chance: '4',
  writer: 'poems',
  piece: '7',
  writeFrom: '0:2',
  question: 'Who?',
  context: 'Anna & Ben',
  reader: 'qa',
  asked: '2',
  answerFrom: '1:3',
  study: '1',
  sort: 'speed',
  rising: 'true',
  curve: 'loss',
  marked: 'rotary & co',
});

describe('the URL fragment', () => {
  it('is empty for the initial state', () => {
    expect(toFragment(initialState())).toBe('');
    expect(fromFragment('')).toEqual(initialState());
    expect(fromFragment('pins=&off=')).toEqual(initialState());
  });

  it('keeps every field', () => {
    const initial = initialState() as unknown as Record<string, Record<string, unknown>>;
    for (const [view, fields] of Object.entries(CHANGED))
      for (const [name, value] of Object.entries(fields))
        expect(value, `${view}.${name}`).not.toEqual(initial[view][name]);
    expect(fromFragment('#' + toFragment(CHANGED))).toEqual(CHANGED);
  });

  it('gives each field a parameter of its own', () => {
    const n = Object.values(CHANGED).reduce((sum, fields) => sum + Object.keys(fields).length, 0);
    expect([...new URLSearchParams(toFragment(CHANGED)).keys()]).toHaveLength(n);
    expect(toFragment({ ...initialState(), steps: CHANGED.steps })).toBe('steps.layer=2&steps.head=1&stage=7');
  });

  it('of an old link still opens the same view', () => {
    expect(fromFragment(OLD_LINK.toString())).toEqual(CHANGED);
    expect(fromFragment('view=write').page.view).toBe('generate');
  });

  it('ignores unknown parameters and invalid values', () => {
    const state = initialState();
    state.translation.pins = [1];
    const fragment = 'view=secret&theme=pink&beam=1000000&length=-5&width=abc&pins=1.x.-2&nonsense=1&constructor=1';
    expect(fromFragment(fragment)).toEqual(state);
  });
});

it('states are assigned field by field', () => {
  const state = initialState();
  const { translation } = state;
  assignState(state, CHANGED);
  expect(state).toEqual(CHANGED);
  expect(state.translation).toBe(translation);
});

it('initial states share nothing', () => {
  initialState().translation.pins.push(1);
  expect(initialState().translation.pins).toEqual([]);
});
