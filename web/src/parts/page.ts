/** The context of every component: the reader's language and colours. */

import { getContext, setContext } from 'svelte';
import type { Language, TextFunction } from '../i18n';
import type { Palette } from '../layout/colour';

export interface Page {
  readonly language: Language;
  readonly t: TextFunction;
  readonly colours: Palette;
}

const KEY = Symbol('page');

export function setPage(page: Page): void {
  setContext(KEY, page);
}

export function getPage(): Page {
  return getContext<Page>(KEY);
}
