/** Which requests the reader's selection causes. */

import { untrack } from 'svelte';
import type { TranslateRequest } from './api';
import type { Session } from './session.svelte';

const DELAY = 120; // milliseconds: a moving slider causes one request

/** Request whatever the selection needs, now and whenever it changes. */
export function fetchAsNeeded(session: Session): void {
  fetchTranslation(session);
  fetchLessons(session);
  fetchTexts(session);
}

function fetchTranslation(session: Session): void {
  const { state } = session;
  const request = $derived<TranslateRequest>({
    text: state.translation.text,
    model: state.translation.model || undefined,
    beam: state.translation.beam,
    prefix: state.translation.prefix ? state.translation.prefix.split(' ') : [],
  });
  const other = $derived<TranslateRequest>({
    text: state.attention.text2 || state.translation.text,
    model: state.attention.model2 || state.translation.model || undefined,
    beam: state.translation.beam,
    prefix: [],
  });
  const needsRun = $derived(
    ['translate', 'attention', 'beam'].includes(state.page.view) &&
      (Boolean(state.translation.text) || !session.api.live),
  );

  onChange(
    () => needsRun && request,
    (translation) => session.translate(translation),
  );
  onChange(
    () => session.best && { part: state.translation.part },
    ({ part }) => session.selectPart(part),
  );
  onChange(
    () => session.best && { node: state.translation.node },
    ({ node }) => session.selectHypothesis(node),
  );
  onChange(
    () => state.page.view === 'attention' && state.attention.compare && other,
    (translation) => session.compare(translation),
  );
  onChange(
    () => {
      const { form, kind, layer, head } = state.attention;
      return state.page.view === 'attention' && form === 'one' && session.current && { kind, layer, head };
    },
    (index) => session.fetchHead(index),
  );
}

function fetchLessons(session: Session): void {
  const { state } = session;
  debounced(() => {
    const { scheme, length, width, base, shift } = state.positions;
    const place = Math.max(0, Math.min(5, length - 1 - shift)); // the position in the example of a shift
    const params = { scheme, length, width, base, steps: shift, place };
    return state.page.view === 'positions' && (() => session.fetchPositions(params));
  });
  debounced(() => {
    const { seed, points, noise } = state.regression;
    const params = { seed, n_train: points, noise, steps: 1 };
    return state.page.view === 'regression' && (() => session.fetchRegression(params));
  });
  debounced(() => {
    const { text, model } = state.translation;
    const { layer, head } = state.steps;
    const params = { text, layer, head, ...(model && { model }) };
    return state.page.view === 'steps' && Boolean(text) && (() => session.fetchSteps(params));
  });
  debounced(() => state.page.view === 'studies' && (() => session.fetchStudies()));
}

function fetchTexts(session: Session): void {
  const { state } = session;
  onChange(
    () => state.page.view === 'generate' && !session.generators && {},
    () => session.fetchGenerators(),
  );
  onChange(
    () => {
      const { prompt, maxTokens, temperature, seed, model } = state.generate;
      const available = state.page.view === 'generate' && Boolean(session.generators?.writers.length);
      return available && { prompt, pieces: maxTokens, temperature, seed, writer: model || undefined };
    },
    (request) => session.generate(request),
  );
  onChange(
    () => state.page.view === 'answers' && !session.readers && {},
    () => session.fetchReaders(),
  );
  onChange(
    () => {
      const { question, context, model } = state.answers;
      const available = state.page.view === 'answers' && Boolean(session.readers?.readers.length);
      return available && Boolean(question && context) && { question, context, reader: model || undefined };
    },
    (request) => session.fetchAnswer(request),
  );
}

/** Run an action with what `need` returns, whenever that changes and is not empty. */
function onChange<T>(need: () => T | false | null | undefined, action: (needed: T) => Promise<void>): void {
  $effect(() => {
    const needed = need();
    if (needed) untrack(() => void action(needed));
  });
}

/** Run the action that `need` returns once the selection has not changed for a moment. */
function debounced(need: () => false | (() => Promise<void>)): void {
  $effect(() => {
    const action = need();
    if (!action) return;
    const timer = setTimeout(() => void action(), DELAY);
    return () => clearTimeout(timer);
  });
}
