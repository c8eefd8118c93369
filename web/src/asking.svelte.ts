/** What the reader's choices make the page ask for. */

import { untrack } from 'svelte';
import type { Ask } from './api';
import type { Session } from './session.svelte';

const LATER = 120; // milliseconds: a slider that moves asks once

/** Asks whenever a choice needs an answer that is not there. */
export function askAsNeeded(session: Session): void {
  const { state } = session;
  const ask = $derived<Ask>({
    text: state.translation.text,
    model: state.translation.model || undefined,
    beam: state.translation.beam,
    prefix: pieces(state.translation.prefix),
  });
  const other = $derived<Ask>({
    text: state.attention.text2 || state.translation.text,
    model: state.attention.model2 || state.translation.model || undefined,
    beam: state.translation.beam,
    prefix: [],
  });
  const needsRun = $derived(
    ['translate', 'attention', 'beam'].includes(state.page.view) &&
      (Boolean(state.translation.text) || !session.api.live),
  );

  when(
    () => needsRun && ask,
    (wanted) => session.translate(wanted),
  );
  when(
    () => session.first && { part: state.translation.part },
    ({ part }) => session.openPart(part),
  );
  when(
    () => session.first && { node: state.translation.node },
    ({ node }) => session.lookAt(node),
  );
  when(
    () => state.page.view === 'attention' && state.attention.compare && other,
    (wanted) => session.compare(wanted),
  );
  when(
    () =>
      state.page.view === 'attention' &&
      state.attention.form === 'one' &&
      session.shown && { kind: state.attention.kind, layer: state.attention.layer, head: state.attention.head },
    (place) => session.openHead(place),
  );
  askLessons(session);
}

function askLessons(session: Session): void {
  const { state } = session;
  later(() => {
    const { scheme, length, width, base, shift } = state.positions;
    const place = Math.max(0, Math.min(5, length - 1 - shift)); // of the example that is shifted
    return (
      state.page.view === 'positions' &&
      (() => session.askPositions({ scheme, length, width, base, steps: shift, place }))
    );
  });
  later(() => {
    const { seed, points, noise } = state.regression;
    return (
      state.page.view === 'regression' && (() => session.askRegression({ seed, n_train: points, noise, steps: 1 }))
    );
  });
  when(
    () => state.page.view === 'generate' && !session.writers && {},
    () => session.askWriters(),
  );
  when(
    () => {
      const { prompt, maxTokens, temperature, seed, model } = state.generate;
      const known = state.page.view === 'generate' && Boolean(session.writers?.writers.length);
      return known && { prompt, pieces: maxTokens, temperature, seed, writer: model || undefined };
    },
    (prompt) => session.goOn(prompt),
  );
  when(
    () => state.page.view === 'answers' && !session.readers && {},
    () => session.askReaders(),
  );
  when(
    () => {
      const { question, context, model } = state.answers;
      const known = state.page.view === 'answers' && Boolean(session.readers?.readers.length);
      return known && Boolean(question && context) && { question, context, reader: model || undefined };
    },
    (asked) => session.answer(asked),
  );
  later(() => state.page.view === 'studies' && (() => session.askStudies()));
  later(() => {
    const wish = {
      text: state.translation.text,
      layer: state.steps.layer,
      head: state.steps.head,
      ...(state.translation.model && { model: state.translation.model }),
    };
    return state.page.view === 'steps' && Boolean(state.translation.text) && (() => session.askWalk(wish));
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
