/** Runs stored in a saved page or a notebook, where there is no server. */

import type { Api } from './api';
import type { Saved } from './trace';

/** An API over stored runs; the views that need a server are not offered there. */
export function savedApi(saved: Saved): Api {
  const unavailable = () => Promise.reject(new Error('not available in a saved page'));
  return {
    live: false,
    models: unavailable,
    streamTranslation: async () => {},
    trace: async () => saved.views[0],
    comparison: async () => saved.views[1] ?? saved.views[0],
    hypothesis: async (view) => view,
    head: async (view, { kind, layer, head }) => {
      const same = (each: Saved['heads'][number]) => each.kind === kind && each.layer === layer && each.head === head;
      return view === saved.views[0] ? (saved.heads.find(same) ?? null) : null;
    },
    positions: unavailable,
    regression: unavailable,
    steps: unavailable,
    generators: unavailable,
    streamGeneration: unavailable,
    generate: unavailable,
    readers: unavailable,
    answer: unavailable,
    studies: unavailable,
    emptyPage: unavailable,
  };
}
