/** What the reader's choices make the page ask for. */

import { untrack } from 'svelte';
import type { Ask } from './api';
import type { Session } from './session.svelte';

const LATER = 120; // milliseconds: a slider that moves asks once

/** Asks whenever a choice needs an answer that is not there. */
export function askAsNeeded(session: Session): void {
  const { state } = session;
  const ask = $derived<Ask>({
    text: state.text,
    model: state.model || undefined,
    beam: state.beam,
    prefix: pieces(state.prefix),
  });
  const other = $derived<Ask>({
    text: state.text2 || state.text,
    model: state.model2 || state.model || undefined,
    beam: state.beam,
    prefix: [],
  });
  const needsRun = $derived(
    ['translate', 'attention', 'beam'].includes(state.view) && (Boolean(state.text) || !session.api.live),
  );

  when(
    () => needsRun && ask,
    (wanted) => session.translate(wanted),
  );
  when(
    () => session.first && { part: state.part },
    ({ part }) => session.openPart(part),
  );
  when(
    () => session.first && { node: state.node },
    ({ node }) => session.lookAt(node),
  );
  when(
    () => state.view === 'attention' && state.compare && other,
    (wanted) => session.compare(wanted),
  );
  when(
    () =>
      state.view === 'attention' &&
      state.form === 'one' &&
      session.shown && { kind: state.kind, layer: state.layer, head: state.head },
    (place) => session.openHead(place),
  );
  askLessons(session);
}

function askLessons(session: Session): void {
  const { state } = session;
  later(() => {
    const { scheme, length, width, base, shift } = state;
    const place = Math.max(0, Math.min(5, length - 1 - shift)); // of the example that is shifted
    return (
      state.view === 'positions' && (() => session.askPositions({ scheme, length, width, base, steps: shift, place }))
    );
  });
  later(() => {
    const { seed, points, noise } = state;
    return state.view === 'regression' && (() => session.askRegression({ seed, n_train: points, noise, steps: 1 }));
  });
  when(
    () => state.view === 'write' && !session.writers && {},
    () => session.askWriters(),
  );
  when(
    () => {
      const { prompt, pieces, temperature, chance, writer } = state;
      const known = state.view === 'write' && Boolean(session.writers?.writers.length);
      return known && { prompt, pieces, temperature, seed: chance, writer: writer || undefined };
    },
    (prompt) => session.goOn(prompt),
  );
  when(
    () => state.view === 'answers' && !session.readers && {},
    () => session.askReaders(),
  );
  when(
    () => {
      const { question, context, reader } = state;
      const known = state.view === 'answers' && Boolean(session.readers?.readers.length);
      return known && Boolean(question && context) && { question, context, reader: reader || undefined };
    },
    (asked) => session.answer(asked),
  );
  later(() => state.view === 'studies' && (() => session.askStudies()));
  later(() => {
    const wish = {
      text: state.text,
      layer: state.walk,
      head: state.walkHead,
      ...(state.model && { model: state.model }),
    };
    return state.view === 'steps' && Boolean(state.text) && (() => session.askWalk(wish));
  });
}

/** Asks as soon as there is something to ask; the answer does not make it ask again. */
function when<T>(need: () => T | false | null | undefined, ask: (wanted: T) => Promise<void>): void {
  $effect(() => {
    const wanted = need();
    if (wanted) untrack(() => void ask(wanted));
  });
}

/** Runs what a function of the choices gives, once they rest. */
function later(need: () => false | (() => Promise<void>)): void {
  $effect(() => {
    const go = need();
    if (!go) return;
    const timer = setTimeout(() => void go(), LATER);
    return () => clearTimeout(timer);
  });
}

function pieces(prefix: string): string[] {
  return prefix ? prefix.split(' ') : [];
}
