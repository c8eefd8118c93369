import { readFileSync, readdirSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { languageOf, textsIn } from '../src/i18n';
import { en } from '../src/i18n/en';
import { zh } from '../src/i18n/zh';

const keys = Object.keys(en) as (keyof typeof en)[];
const names = (text: string) => (text.match(/\{\w+\}/g) ?? []).sort();

describe('texts', () => {
  it('exist in both languages, and no others', () => {
    expect(Object.keys(zh).sort()).toEqual([...keys].sort());
  });

  it('have the same placeholders in both', () => {
    for (const key of keys) {
      expect(en[key].trim(), key).not.toBe('');
      expect(zh[key].trim(), key).not.toBe('');
      expect(names(zh[key]), key).toEqual(names(en[key]));
    }
  });

  it('are in Chinese unless they have no words', () => {
    const same = keys.filter((key) => !/\p{Script=Han}/u.test(zh[key]));
    expect(same.sort()).toEqual([
      'attends.weight',
      'lines.readout',
      'name',
      'one.cell',
      'regression.chosen',
      'regression.fixed',
      'regression.reset',
      'save.page',
      'steps.cell',
      'studies.bleu',
      'studies.gain',
    ]);
  });

  it('are all used', () => {
    const folder = new URL('../src/', import.meta.url);
    const files = readdirSync(folder, { recursive: true })
      .map(String)
      .filter((name) => /\.(svelte|ts)$/.test(name) && !/i18n.(en|zh)\.ts$/.test(name));
    const source = files.map((name) => readFileSync(new URL(name, folder), 'utf8')).join('\n');
    const stems = [...source.matchAll(/`([a-z]+)\.\$\{/g)].map((match) => match[1] + '.'); // keys composed in the code
    expect(keys.filter((key) => !source.includes(`'${key}'`) && !stems.some((stem) => key.startsWith(stem)))).toEqual(
      [],
    );
  });
});

describe('a text', () => {
  it('has values in place of placeholders', () => {
    expect(textsIn('en')('one.title', { layer: 2, head: 0 })).toBe('Layer 2, head 0');
    expect(textsIn('zh')('one.title', { layer: 2, head: 0 })).toBe('第 2 层第 0 头');
  });

  it('is in the selected language, or in the browser’s', () => {
    expect(languageOf('auto', 'zh-TW')).toBe('zh');
    expect(languageOf('auto', 'de-DE')).toBe('en');
    expect(languageOf('en', 'zh-CN')).toBe('en');
  });
});
