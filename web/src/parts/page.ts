/** What every part of the page may ask: the reader's language and colours. */

import { getContext, setContext } from 'svelte';
import type { Language, Say } from '../i18n';
import type { Palette } from '../layout/colour';

export interface Page {
  readonly language: Language;
  readonly say: Say;
  readonly colours: Palette;
}

const KEY = Symbol('page');

export function setPage(page: Page): void {
  setContext(KEY, page);
}

export function getPage(): Page {
  return getContext<Page>(KEY);
}
