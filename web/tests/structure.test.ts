import { readFileSync, readdirSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { MARK, toHtml } from '../src/parts/save';

const folder = new URL('../src/', import.meta.url);
const files = readdirSync(folder, { recursive: true })
  .map(String)
  .filter((name) => /\.(svelte|ts)$/.test(name));
const read = (name: string) => readFileSync(new URL(name, folder), 'utf8');
const imports = (name: string) => [...read(name).matchAll(/from '([^']+)'/g)].map((match) => match[1]);

describe('every file', () => {
  it.each(files)('%s begins with a description and stays small', (name) => {
    const text = read(name);
    expect(text).toMatch(name.endsWith('.svelte') ? /^<!-- .+ -->\n/ : /^\/[/*]+ .+/);
    expect(text.split('\n').length).toBeLessThanOrEqual(
      name.endsWith('.svelte') ? 150 : /trace|i18n/.test(name) ? 600 : 300,
    );
  });
});

describe('layouts', () => {
  it.each(files.filter((name) => name.startsWith('layout')))('%s computes, and does not touch the page', (name) => {
    expect(read(name)).not.toMatch(/\b(document|window|fetch|HTMLElement)\b/);
    for (const from of imports(name)) expect(from).toMatch(/^(\.\/|\.\.\/(trace|state|run|generation|i18n)$|d3-)/);
  });
});

describe('views', () => {
  it.each(files.filter((name) => name.startsWith('views')))('%s draws, and does not fetch', (name) => {
    expect(read(name)).not.toMatch(/\bfetch\(|querySelector|getElementById|setInterval/);
    for (const from of imports(name)) expect(from).not.toMatch(/api$|saved$|requests/);
  });
});

describe('only api.ts', () => {
  it('fetches', () => {
    expect(files.filter((name) => /\bfetch\(/.test(read(name)))).toEqual(['api.ts']);
  });
});

describe('a saved page', () => {
  it('holds data that cannot close their own element', () => {
    const saved = { views: [], heads: [{ kind: '</script><!--' }] } as never;
    const page = toHtml(`<head>${MARK}</head>`, saved, 'text="a"&view=beam');
    expect(page.match(/<\/script>/g)).toHaveLength(1);
    expect(page).toContain('data-address="text=&quot;a&quot;&amp;view=beam"');
    expect(JSON.parse(/>(\{.*\})</.exec(page)![1])).toEqual(saved);
  });
});
