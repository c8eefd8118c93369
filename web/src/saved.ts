/** Runs that lie beside the page, in a file or in a notebook, where there is no server to ask. */

import type { Api } from './api';
import type { Saved } from './trace';

/** What takes the place of a server; questions that need one are not asked, as no view offers them. */
export function savedApi(saved: Saved): Api {
  const missing = () => Promise.reject(new Error('not available in a saved page'));
  return {
    live: false,
    models: missing,
    write: async () => {},
    trace: async () => saved.views[0],
    beside: async () => saved.views[1] ?? saved.views[0],
    traceOf: async (view) => view,
    head: async (view, { kind, layer, head }) => {
      const same = (each: Saved['heads'][number]) => each.kind === kind && each.layer === layer && each.head === head;
      return view === saved.views[0] ? (saved.heads.find(same) ?? null) : null;
    },
    positions: missing,
    regression: missing,
    walk: missing,
    writers: missing,
    goOn: missing,
    written: missing,
    readers: missing,
    answer: missing,
    studies: missing,
    emptyPage: missing,
  };
}
