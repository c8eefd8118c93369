/** The reader's selection, and the server's responses to it. */

import {
  type AnswerRequest,
  type Api,
  ApiError,
  type GenerateRequest,
  type HeadIndex,
  type Params,
  type TranslateRequest,
} from './api';
import { EMPTY, type Generation, append } from './generation';
import { type Run, unpackRun } from './run';
import { type State, initialState } from './state';
import type {
  AnswerResponse,
  Head,
  Models,
  Positions,
  Readers,
  Regression,
  Studies,
  View,
  LayerSteps,
  Writers,
  GeneratedToken,
  TranslationUpdate,
} from './trace';

/** Runs one request at a time: a new one aborts the last. */
class LatestRequest {
  #controller: AbortController | null = null;

  /** Return the error message, or '' on success and when aborted. */
  async run<T>(request: (signal: AbortSignal) => Promise<T>, onResult: (result: T) => void): Promise<string> {
    this.#controller?.abort();
    const { signal } = (this.#controller = new AbortController());
    try {
      const result = await request(signal);
      if (!signal.aborted) onResult(result);
      return '';
    } catch (error) {
      return signal.aborted ? '' : error instanceof Error ? error.message : String(error);
    }
  }
}

export class Session {
  readonly api: Api;
  state: State = $state(initialState());
  models = $state.raw<Models | null>(null);
  best = $state.raw<Run | null>(null); // with the best hypothesis
  current = $state.raw<Run | null>(null); // with the selected hypothesis
  other = $state.raw<Run | null>(null); // the second run of a comparison
  head = $state.raw<Head | null>(null);
  positions = $state.raw<Positions | null>(null);
  regression = $state.raw<Regression | null>(null);
  steps = $state.raw<LayerSteps | null>(null);
  generators = $state.raw<Writers | null>(null);
  generation = $state.raw<Generation>(EMPTY);
  readers = $state.raw<Readers | null>(null);
  answer = $state.raw<(AnswerResponse & { run: Run }) | null>(null);
  studies = $state.raw<Studies | null>(null);
  partial = $state(''); // the translation while it streams in
  busy = $state(0); // number of open requests
  error = $state('');
  #request: TranslateRequest | null = null; // whose response is `best`
  #requests = {
    translation: new LatestRequest(),
    hypothesis: new LatestRequest(),
    comparison: new LatestRequest(),
    head: new LatestRequest(),
    view: new LatestRequest(), // of the views without a translation: one is open at a time
    models: new LatestRequest(),
  };

  constructor(api: Api, state: State) {
    this.api = api;
    this.state = state;
  }

  async fetchModels(): Promise<void> {
    if (this.api.live) this.models = await this.api.models().catch(() => null);
  }

  /** Stream a translation, then fetch the trace of the same search. */
  translate(request: TranslateRequest): Promise<void> {
    this.partial = '';
    this.#request = request;
    return this.#track(
      this.#requests.translation.run(
        async (signal) => {
          let id: string | null = null;
          const onLine = (line: TranslationUpdate) => {
            if (line.error) throw new Error(line.error);
            if (!signal.aborted) this.partial = line.text;
            id = line.id;
          };
          await this.api.streamTranslation(request, onLine, signal);
          return unpackRun(await this.api.trace(request, signal, id));
        },
        (run) => {
          this.best = this.current = run;
          this.partial = '';
        },
      ),
    );
  }

  /** Select another segment of a long text. */
  selectPart(part: number): Promise<void> {
    const best = this.best;
    if (!best || part === best.view.part || part >= best.view.n_parts) return Promise.resolve();
    const request = async (signal: AbortSignal) =>
      unpackRun(await this.#retrace(best.view, signal, (view) => this.api.hypothesis(view, { part }, signal)));
    return this.#track(this.#requests.hypothesis.run(request, (run) => (this.best = this.current = run)));
  }

  /** Select another hypothesis of the same search; -1 is the best. */
  selectHypothesis(node: number): Promise<void> {
    const best = this.best;
    if (!best) return Promise.resolve();
    const leaf = node < 0 ? best.view.leaf : node;
    if (leaf === this.current?.view.leaf) return Promise.resolve();
    const request = async (signal: AbortSignal) =>
      leaf === best.view.leaf
        ? best
        : unpackRun(
            await this.#retrace(best.view, signal, (view) =>
              this.api.hypothesis(view, { part: view.part, node: leaf }, signal),
            ),
          );
    return this.#track(this.#requests.hypothesis.run(request, (run) => (this.current = run)));
  }

  compare(translation: TranslateRequest): Promise<void> {
    const request = async (signal: AbortSignal) => unpackRun(await this.api.comparison(translation, signal));
    return this.#track(this.#requests.comparison.run(request, (run) => (this.other = run)));
  }

  fetchHead(index: HeadIndex): Promise<void> {
    const current = this.current;
    this.head = null;
    if (!current) return Promise.resolve();
    const request = (signal: AbortSignal) =>
      this.#retrace(current.view, signal, (view) => this.api.head(view, index, signal));
    return this.#track(this.#requests.head.run(request, (head) => (this.head = head)));
  }

  fetchPositions(params: Params): Promise<void> {
    return this.#track(
      this.#requests.view.run(
        (signal) => this.api.positions(params, signal),
        (positions) => (this.positions = positions),
      ),
    );
  }

  fetchRegression(params: Params): Promise<void> {
    return this.#track(
      this.#requests.view.run(
        (signal) => this.api.regression(params, signal),
        (regression) => (this.regression = regression),
      ),
    );
  }

  fetchSteps(params: Params): Promise<void> {
    return this.#track(
      this.#requests.view.run(
        (signal) => this.api.steps(params, signal),
        (steps) => (this.steps = steps),
      ),
    );
  }

  fetchGenerators(): Promise<void> {
    return this.#track(
      this.#requests.models.run(
        (signal) => this.api.generators(signal),
        (generators) => (this.generators = generators),
      ),
    );
  }

  /** Stream a generated text with the attention of each token, then fetch the whole run. */
  generate(request: GenerateRequest): Promise<void> {
    this.generation = EMPTY;
    return this.#track(
      this.#requests.view.run(
        async (signal) => {
          const onLine = (line: GeneratedToken) => {
            if (line.error) throw new Error(line.error);
            if (!signal.aborted) this.generation = append(this.generation, line);
          };
          await this.api.streamGeneration(request, onLine, signal);
          return unpackRun(await this.api.generate(request, signal));
        },
        (run) => (this.generation = { ...this.generation, run }),
      ),
    );
  }

  fetchReaders(): Promise<void> {
    return this.#track(
      this.#requests.models.run(
        (signal) => this.api.readers(signal),
        (readers) => (this.readers = readers),
      ),
    );
  }

  fetchAnswer(question: AnswerRequest): Promise<void> {
    const request = async (signal: AbortSignal) => {
      const answer = await this.api.answer(question, signal);
      return { ...answer, run: await unpackRun(answer.view) };
    };
    return this.#track(this.#requests.view.run(request, (answer) => (this.answer = answer)));
  }

  fetchStudies(): Promise<void> {
    return this.#track(
      this.#requests.view.run(
        (signal) => this.api.studies(signal),
        (studies) => (this.studies = studies),
      ),
    );
  }

  /** Send a request about a trace; if the server no longer has the trace, compute it again first. */
  async #retrace<T>(view: View, signal: AbortSignal, request: (view: View) => Promise<T>): Promise<T> {
    try {
      return await request(view);
    } catch (error) {
      if (!(error instanceof ApiError && error.status === 404 && this.#request)) throw error;
      view.id = (await this.api.trace(this.#request, signal)).id;
      return request(view);
    }
  }

  async #track(request: Promise<string>): Promise<void> {
    this.busy++;
    this.error = '';
    const error = await request;
    if (error) this.error = error;
    this.busy--;
  }
}
