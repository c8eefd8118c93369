/** Responses of a server, recorded by
 *  POST /trace {"text": "介绍一下西安", "beam": 3}, GET /trace/{id}/head?kind=cross&layer=1&head=2 and
 *  GET /regression?seed=1&n_train=12&n_test=9&steps=20&w=3
 */

import { readFileSync } from 'node:fs';
import type { Head, Regression, View } from '../src/trace';

function read<T>(name: string): T {
  return JSON.parse(readFileSync(new URL(`recorded/${name}.json`, import.meta.url), 'utf8')) as T;
}

export const view = read<View>('view');
export const head = read<Head>('head');
export const regression = read<Regression>('regression');

/** An average font, accurate enough for layouts. */
export const measure = (text: string, size: number) =>
  [...text].reduce((sum, letter) => sum + (letter > '\u2e80' ? size : 0.56 * size), 0);
