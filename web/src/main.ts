/** The entry point, for the web page, a saved page and a notebook. */

import { mount, unmount } from 'svelte';
import App from './App.svelte';
import { type Api, serverApi } from './api';
import { savedApi } from './saved';
import { Session } from './session.svelte';
import { type State, fromFragment } from './state';
import theme from './theme.css?inline';
import type { Saved } from './trace';

/** Mount the page in an element; return a function that removes it. */
function show(target: Element, api: Api, state: State, usesUrl: boolean): () => void {
  const style = document.createElement('style');
  style.textContent = theme;
  target.append(style);
  const session = new Session(api, state);
  void session.fetchModels();
  const app = mount(App, { target, props: { session, usesUrl } });
  return () => {
    void unmount(app);
    style.remove();
  };
}

/** Start the web page, or a saved page if the document holds runs. */
function start(target: Element): () => void {
  const data = document.getElementById('regard-view');
  if (!data) return show(target, serverApi(), fromFragment(location.hash), true);
  return showSaved(
    target,
    JSON.parse(data.textContent ?? '') as Saved,
    location.hash || (data.dataset.address ?? ''),
    true,
  );
}

function showSaved(target: Element, saved: Saved, fragment: string, usesUrl: boolean): () => void {
  const [first, second] = saved.views;
  const state = fromFragment(fragment);
  const { text, model, search, steps } = first;
  // A model without a decoder has nothing to show but attention.
  if (!steps.length || !['translate', 'attention', 'beam'].includes(state.page.view)) state.page.view = 'attention';
  Object.assign(state.translation, { text, model, beam: search.beam, prefix: '', part: 0, node: -1 });
  state.attention.compare = Boolean(second);
  return show(target, savedApi(saved), state, usesUrl);
}

interface Model {
  get(name: string): unknown;
}

/** Show a run in a notebook, as anywidget requires: `saved` holds the runs, `address` the initial URL fragment. */
export function render({ model, el }: { model: Model; el: HTMLElement }): () => void {
  const data = model.get('saved');
  const saved = (typeof data === 'string' ? JSON.parse(data) : data) as Saved;
  // JupyterLab's theme, which need not be the system's.
  const theme = { true: 'theme=light&', false: 'theme=dark&' }[document.body.dataset.jpThemeLight ?? ''] ?? '';
  // Otherwise JupyterLab handles keys meant for the view, and moves or cuts cells.
  el.addEventListener('focusin', ({ target }) => ((target as HTMLElement).dataset.lmSuppressShortcuts = 'true'));
  return showSaved(el, saved, theme + String(model.get('address') ?? ''), false);
}

export default { render };

const page = document.getElementById('regard-page');
if (page) start(page);
