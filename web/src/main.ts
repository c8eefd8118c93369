/** The page's module: mounted by the web page, by a saved file, and by a notebook. */

import { mount, unmount } from 'svelte';
import App from './App.svelte';
import { type Api, serverApi } from './api';
import { savedApi } from './saved';
import { Session } from './session.svelte';
import { type State, fromFragment } from './state';
import theme from './theme.css?inline';
import type { Saved } from './trace';

/** Draws the page into an element; gives what takes it away again. */
function show(target: Element, api: Api, state: State, usesUrl: boolean): () => void {
  const style = document.createElement('style');
  style.textContent = theme;
  target.append(style);
  const session = new Session(api, state);
  void session.learnModels();
  const app = mount(App, { target, props: { session, usesUrl } });
  return () => {
    void unmount(app);
    style.remove();
  };
}

/** Starts the web page, or a saved file where the document holds runs. */
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
  if (!['translate', 'attention', 'beam'].includes(state.page.view)) state.page.view = 'attention';
  const { text, model, search } = first;
  Object.assign(state.translation, { text, model, beam: search.beam, prefix: '', part: 0, node: -1 });
  state.attention.compare = Boolean(second);
  return show(target, savedApi(saved), state, usesUrl);
}

interface Model {
  get(name: string): unknown;
}

/** Draws a run in a notebook, as anywidget asks: `saved` holds the runs, `address` what is shown at first. */
export function render({ model, el }: { model: Model; el: HTMLElement }): () => void {
  const given = model.get('saved');
  const saved = (typeof given === 'string' ? JSON.parse(given) : given) as Saved;
  // JupyterLab says on its body whether it is dark, whatever the system prefers.
  const theme = { true: 'theme=light&', false: 'theme=dark&' }[document.body.dataset.jpThemeLight ?? ''] ?? '';
  // Without this mark on what has the focus, JupyterLab takes keys that are meant for the view, and moves or cuts cells.
  el.addEventListener('focusin', ({ target }) => ((target as HTMLElement).dataset.lmSuppressShortcuts = 'true'));
  return showSaved(el, saved, theme + String(model.get('address') ?? ''), false);
}

export default { render };

const page = document.getElementById('regard-page');
if (page) start(page);
