/** Texts by key, in the reader's language. */

import { type Key, en } from './en';
import { zh } from './zh';

export type { Key };
export type Language = 'en' | 'zh';
export type TextFunction = (key: Key, values?: Record<string, string | number>) => string;

const TEXTS: Record<Language, Record<Key, string>> = { en, zh };

export function textsIn(language: Language): TextFunction {
  return (key, values = {}) =>
    TEXTS[language][key].replace(/\{(\w+)\}/g, (_, name: string) => String(values[name] ?? ''));
}

/** Return the selected language, or else the browser's. */
export function languageOf(selected: string, browser: string): Language {
  if (selected === 'en' || selected === 'zh') return selected;
  return browser.toLowerCase().startsWith('zh') ? 'zh' : 'en';
}

export function isKey(name: string): name is Key {
  return name in en;
}
