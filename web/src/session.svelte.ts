/** What is known at the moment: the reader's choices, and the answers to them. */

import { type Api, type Ask, type Asked, type HeadPlace, type Prompt, Refused } from './api';
import { type Seen, see } from './seen';
import { type State, initialState } from './state';
import { NOTHING, type Wrote, added } from './wrote';
import type {
  Answered,
  Head,
  Models,
  Positions,
  Readers,
  Regression,
  Studies,
  View,
  Walk,
  Writers,
  WrotePiece,
} from './trace';

/** One question at a time: a newer one takes the place of the last. */
class Line {
  #last: AbortController | null = null;

  async ask<T>(question: (signal: AbortSignal) => Promise<T>, heard: (answer: T) => void): Promise<string> {
    this.#last?.abort();
    const mine = (this.#last = new AbortController());
    try {
      const answer = await question(mine.signal);
      if (!mine.signal.aborted) heard(answer);
      return '';
    } catch (error) {
      return mine.signal.aborted ? '' : error instanceof Error ? error.message : String(error);
    }
  }
}

export class Session {
  readonly api: Api;
  state: State = $state(initialState());
  models = $state.raw<Models | null>(null);
  first = $state.raw<Seen | null>(null); // the best hypothesis
  shown = $state.raw<Seen | null>(null); // the one that is looked at
  second = $state.raw<Seen | null>(null); // of the other side of a comparison
  head = $state.raw<Head | null>(null);
  positions = $state.raw<Positions | null>(null);
  regression = $state.raw<Regression | null>(null);
  walk = $state.raw<Walk | null>(null);
  writers = $state.raw<Writers | null>(null);
  wrote = $state.raw<Wrote>(NOTHING);
  readers = $state.raw<Readers | null>(null);
  answered = $state.raw<(Answered & { seen: Seen }) | null>(null);
  studies = $state.raw<Studies | null>(null);
  writing = $state(''); // the translation so far
  busy = $state(0);
  error = $state('');
  #ask: Ask | null = null; // what `first` answers
  #lines = {
    first: new Line(),
    node: new Line(),
    second: new Line(),
    head: new Line(),
    lesson: new Line(),
    readers: new Line(),
  };

  constructor(api: Api, start: State) {
    this.api = api;
    this.state = start;
  }

  async learnModels(): Promise<void> {
    if (this.api.live) this.models = await this.api.models().catch(() => null);
  }

  /** Has a text written, word by word, and then looks into it. */
  translate(ask: Ask): Promise<void> {
    this.writing = '';
    this.#ask = ask;
    return this.#while(
      this.#lines.first.ask(
        async (signal) => {
          const hear = (line: { text: string; error: string | null }) => {
            if (line.error) throw new Error(line.error);
            if (!signal.aborted) this.writing = line.text;
          };
          await this.api.write(ask, hear, signal);
          return see(await this.api.trace(ask, signal));
        },
        (seen) => {
          this.first = this.shown = seen;
          this.writing = '';
        },
      ),
    );
  }

  /** Turns to another part of a long text. */
  openPart(part: number): Promise<void> {
    const first = this.first;
    if (!first || part === first.view.part || part >= first.view.n_parts) return Promise.resolve();
    const question = async (signal: AbortSignal) =>
      see(await this.#kept(first.view, signal, (view) => this.api.traceOf(view, { part }, signal)));
    return this.#while(this.#lines.node.ask(question, (seen) => (this.first = this.shown = seen)));
  }

  /** Looks at another hypothesis of the same search. */
  lookAt(node: number): Promise<void> {
    const first = this.first;
    if (!first) return Promise.resolve();
    const wanted = node < 0 ? first.view.leaf : node;
    if (wanted === this.shown?.view.leaf) return Promise.resolve();
    const question = async (signal: AbortSignal) =>
      wanted === first.view.leaf
        ? first
        : see(
            await this.#kept(first.view, signal, (view) =>
              this.api.traceOf(view, { part: view.part, node: wanted }, signal),
            ),
          );
    return this.#while(this.#lines.node.ask(question, (seen) => (this.shown = seen)));
  }

  compare(ask: Ask): Promise<void> {
    const question = async (signal: AbortSignal) => see(await this.api.beside(ask, signal));
    return this.#while(this.#lines.second.ask(question, (seen) => (this.second = seen)));
  }

  openHead(place: HeadPlace): Promise<void> {
    const shown = this.shown;
    this.head = null;
    if (!shown) return Promise.resolve();
    const question = (signal: AbortSignal) =>
      this.#kept(shown.view, signal, (view) => this.api.head(view, place, signal));
    return this.#while(this.#lines.head.ask(question, (answer) => (this.head = answer)));
  }

  askPositions(wish: Record<string, string | number>): Promise<void> {
    return this.#while(
      this.#lines.lesson.ask(
        (signal) => this.api.positions(wish, signal),
        (is) => (this.positions = is),
      ),
    );
  }

  askRegression(wish: Record<string, string | number>): Promise<void> {
    return this.#while(
      this.#lines.lesson.ask(
        (signal) => this.api.regression(wish, signal),
        (is) => (this.regression = is),
      ),
    );
  }

  askWalk(wish: Record<string, string | number>): Promise<void> {
    return this.#while(
      this.#lines.lesson.ask(
        (signal) => this.api.walk(wish, signal),
        (is) => (this.walk = is),
      ),
    );
  }

  askWriters(): Promise<void> {
    return this.#while(
      this.#lines.readers.ask(
        (signal) => this.api.writers(signal),
        (are) => (this.writers = are),
      ),
    );
  }

  /** Has a text written, piece by piece with what each looked at, and then looks into the whole. */
  goOn(prompt: Prompt): Promise<void> {
    this.wrote = NOTHING;
    return this.#while(
      this.#lines.lesson.ask(
        async (signal) => {
          const hear = (line: WrotePiece) => {
            if (line.error) throw new Error(line.error);
            if (!signal.aborted) this.wrote = added(this.wrote, line);
          };
          await this.api.goOn(prompt, hear, signal);
          return see(await this.api.written(prompt, signal));
        },
        (seen) => (this.wrote = { ...this.wrote, seen }),
      ),
    );
  }

  askReaders(): Promise<void> {
    return this.#while(
      this.#lines.readers.ask(
        (signal) => this.api.readers(signal),
        (are) => (this.readers = are),
      ),
    );
  }

  /** Has a question answered, and keeps the reading that found the answer. */
  answer(asked: Asked): Promise<void> {
    const question = async (signal: AbortSignal) => {
      const found = await this.api.answer(asked, signal);
      return { ...found, seen: await see(found.view) };
    };
    return this.#while(this.#lines.lesson.ask(question, (is) => (this.answered = is)));
  }

  askStudies(): Promise<void> {
    return this.#while(
      this.#lines.lesson.ask(
        (signal) => this.api.studies(signal),
        (are) => (this.studies = are),
      ),
    );
  }

  /** Asks about a run; where the server has forgotten it, the run is made again, which gives the same. */
  async #kept<T>(view: View, signal: AbortSignal, question: (view: View) => Promise<T>): Promise<T> {
    try {
      return await question(view);
    } catch (error) {
      if (!(error instanceof Refused && error.status === 404 && this.#ask)) throw error;
      view.id = (await this.api.trace(this.#ask, signal)).id;
      return question(view);
    }
  }

  async #while(question: Promise<string>): Promise<void> {
    this.busy++;
    this.error = '';
    const error = await question;
    if (error) this.error = error;
    this.busy--;
  }
}
