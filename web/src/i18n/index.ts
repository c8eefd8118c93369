/** Texts by their names, in the reader's language. */

import { en, type Key } from './en';
import { zh } from './zh';

export type { Key };
export type Language = 'en' | 'zh';
export type Say = (key: Key, values?: Record<string, string | number>) => string;

const TEXTS: Record<Language, Record<Key, string>> = { en, zh };

export function sayIn(language: Language): Say {
  return (key, values = {}) =>
    TEXTS[language][key].replace(/\{(\w+)\}/g, (_, name: string) => String(values[name] ?? ''));
}

/** Gives the language that was chosen, or else the browser's. */
export function languageOf(chosen: string, browser: string): Language {
  if (chosen === 'en' || chosen === 'zh') return chosen;
  return browser.toLowerCase().startsWith('zh') ? 'zh' : 'en';
}

export function isKey(name: string): name is Key {
  return name in en;
}
