import { describe, expect, it } from 'vitest';
import { START, type State, fromAddress, toAddress } from '../src/state';

describe('the address', () => {
  it('is empty at the start', () => {
    expect(toAddress(START)).toBe('');
    expect(fromAddress('')).toEqual(START);
    expect(fromAddress('pins=&off=')).toEqual(START);
  });

  it('gives every choice back', () => {
    const state: State = {
      view: 'attention',
      lang: 'zh',
      theme: 'dark',
      text: 'a & b = 介绍',
      model: 'en-zh',
      beam: 3,
      prefix: '▁In tro',
      part: 1,
      node: 17,
      unit: 'piece',
      from: '1',
      pins: [2, 0],
      kind: 'encoder',
      form: 'one',
      layer: 4,
      head: 5,
      off: [1, 3],
      scale: 'own',
      compare: true,
      text2: '另一句#',
      model2: 'zh-en',
      dropped: true,
      scheme: 'rotary',
      length: 100,
      width: 48,
      base: 500,
      order: 'halves',
      join: 'concat',
      shift: 3,
      seed: 9,
      noise: 0.1,
      points: 20,
      w: 2.345,
      walk: 2,
      walkHead: 1,
      stage: 7,
      prompt: 'ROMEO:\n',
      pieces: 50,
      temperature: 1.2,
      chance: 4,
      writer: 'poems',
      piece: 7,
      writeFrom: '0:2',
      question: 'Who?',
      context: 'Anna & Ben',
      reader: 'qa',
      asked: 2,
      answerFrom: '1:3',
      study: 1,
      sort: 'speed',
      rising: true,
      curve: 'loss',
      marked: 'rotary & co',
    };
    for (const key of Object.keys(START) as (keyof State)[]) expect(state[key], key).not.toEqual(START[key]);
    expect(fromAddress('#' + toAddress(state))).toEqual(state);
  });

  it('does not take what makes no sense', () => {
    expect(fromAddress('view=secret&theme=pink&beam=1000000&length=-5&width=abc&pins=1.x.-2&nonsense=1')).toEqual({
      ...START,
      pins: [1],
    });
  });
});
