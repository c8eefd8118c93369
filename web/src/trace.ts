// Written by `python tools/typescript.py > web/src/trace.ts` from the dataclasses in src/regard/serve.

/** A word, and the indices of its tokens. */
export interface Word {
  text: string;
  places: number[];
}

/** The tokens of one side, with ▁ for a space, and the words that they form. */
export interface Side {
  pieces: string[];
  words: Word[];
}

/**
 * All heads of one kind of attention.
 *
 * `weights` are bytes in the order [layer][head][query][key]: b = round(255·√w), so that w ≈ (b / 255)². They are
 * compressed with raw deflate and encoded in base64.
 */
export interface Kind {
  /** encoder (source looks at source), decoder (read at read) or cross (read at source) */
  kind: string;
  n_layers: number;
  n_heads: number;
  n_queries: number;
  n_keys: number;
  weights: string;
  /** [layer][head]: 0 for one key, 1 for uniform weights; null: no such head */
  entropy: ((number | null)[])[];
}

/** A token that might have followed. */
export interface Option {
  piece: string;
  log_prob: number;
}

/** A token that was written, and its alternatives, most likely first. */
export interface Step {
  piece: string;
  /** in the search */
  log_prob: number | null;
  /** in the replay by the reference model */
  replayed: number | null;
  alternatives: Option[];
}

/** A token that the search considered, with its parent the token before it. */
export interface Node {
  number: number;
  /** the node before, or -1 */
  parent: number;
  /** number of tokens before it */
  step: number;
  piece: string;
  /** log-probability */
  gain: number | null;
  /** sum of log-probabilities up to it */
  total: number | null;
  /** kept, ended, dropped or open */
  fate: string;
}

/** A final hypothesis of the search, finished or not. */
export interface Leaf {
  node: number;
  text: string;
  /** by which hypotheses are ranked */
  score: number | null;
  log_prob: number | null;
  finished: boolean;
}

/** The search tree; node i is nodes[i], and parents precede their children. */
export interface Tree {
  nodes: Node[];
  /** last node of the best hypothesis; -1 if nothing was written */
  best: number;
  /** nodes up to it */
  best_path: number[];
  /** best first */
  leaves: Leaf[];
}

/** How well the trace agrees with the computation; null if there is nothing to compare. */
export interface Checks {
  /** largest difference of weights @ v from an attention's output, relative to its largest value */
  weights: number | null;
  /** the attention with that difference */
  look: string;
  /** largest difference of a log-probability between search and replay */
  log_prob: number | null;
}

/** Norms of the residual stream around a sub-layer, one per token. */
export interface Flow {
  /** encoder or decoder */
  stack: string;
  layer: number;
  /** attention, cross_attention or feed_forward */
  sublayer: string;
  before: number[];
  update: number[];
  after: number[];
}

/** The cross-attention head, or mean of heads, that was measured to align words best. */
export interface Aligning {
  /** null: all layers */
  layer: number | null;
  /** null: all heads */
  head: number | null;
  /** say: a row belongs to the token written at that step; read: to the one written a step before */
  at: string;
}

/** How the tokens were chosen. */
export interface Search {
  /** greedy, beam or sample */
  method: string;
  beam: number;
  length_penalty: number;
}

/** A trace, ready to be drawn. Row t of decoder and cross attention is from writing target.pieces[t]. */
export interface View {
  /** of the cached trace; null in a file */
  id: string | null;
  model: string;
  text: string;
  output: string;
  src_lang: string;
  tgt_lang: string;
  search: Search;
  source: Side;
  read: Side;
  target: Side;
  kinds: Kind[];
  steps: Step[];
  tree: Tree;
  /** last node of the path that is shown */
  leaf: number;
  /** which part, if the text was too long to be read at once */
  part: number;
  n_parts: number;
  checks: Checks;
  flows: Flow[];
  /** null if it was not measured */
  aligning: Aligning | null;
}

/** A term of the scores. */
export interface Term {
  name: string;
  values: number[][];
}

/** The exact numbers of a head, [query][key], to seven digits. */
export interface Head {
  kind: string;
  layer: number;
  head: number;
  queries: string[];
  keys: string[];
  weights: number[][];
  /** per query, in nats */
  entropy: number[];
  /** the mask */
  allowed: boolean[][];
  /** before the softmax, masked pairs included; null if unknown */
  scores: number[][] | null;
  /** their sum is the scores */
  terms: Term[];
  /** of that sum, relative to the largest score */
  error: number | null;
}

/** The data of a saved page: traces, and the heads of the first one. */
export interface Saved {
  views: View[];
  heads: Head[];
}

/** A span of the text that may be the answer: characters from start up to stop, and its probability. */
export interface AnswerSpan {
  text: string;
  start: number;
  stop: number;
  probability: number;
}

/**
 * A question, its most likely answers, and the trace of the window of the text in which the best was found.
 *
 * The places of words are indices into `view.source.pieces`, where the question precedes the text. There is one kind
 * of attention, `encoder`.
 */
export interface AnswerResponse {
  reader: string;
  question: Word[];
  /** of the window */
  context: Word[];
  /** indices of its words, from … up to */
  answer: number[];
  /** whether the window is the whole text */
  whole: boolean;
  /** best first */
  stretches: AnswerSpan[];
  /** probability that the text has no answer */
  nowhere: number;
  view: View;
}

/** The question answering models of this server. */
export interface Readers {
  readers: string[];
}

/** A line of /generate/stream: first the tokens of the prompt, then each generated token. */
export interface GeneratedToken {
  pieces: string[];
  log_prob: number | null;
  /** attention to the tokens before it, oldest first, averaged over all heads */
  looked: number[];
  done: boolean;
  error: string | null;
}

/** The text generation models of this server. */
export interface Writers {
  writers: string[];
}

/** Response of /translate: strings for one text, lists for a list of texts. */
export interface TranslateResponse {
  translatedText: string | string[];
  /** if requested; without the best */
  alternatives: string[] | string[][] | null;
  detectedLanguage: Detected | Detected[] | null;
}

/** The language of a text, detected by its script. */
export interface Detected {
  language: string;
  /** per cent */
  confidence: number;
}

/** A source language and its target languages. */
export interface Language {
  code: string;
  name: string;
  targets: string[];
}

/** Scores of a model. */
export interface ModelScores {
  bleu: number | null;
  /** test or valid */
  measured_on: string | null;
}

/** A translation model of this server. */
export interface Model {
  name: string;
  src_lang: string;
  tgt_lang: string;
  /** transformer or recurrent */
  family: string;
  n_encoder_layers: number;
  n_decoder_layers: number;
  n_heads: number;
  d_model: number;
  d_ff: number;
  attention: string;
  position: string;
  /** of the target side */
  vocab_size: number;
  max_len: number;
  scores: ModelScores;
  loaded: boolean;
}

/** Limits of this server. */
export interface Limits {
  /** per request, all texts together */
  max_chars: number;
  /** of a text to trace: the same */
  max_trace_chars: number;
  max_texts: number;
  max_beam: number;
  /** bytes */
  max_body: number;
  /** per request, sentences times beam */
  max_hypotheses: number;
  /** until a response */
  max_seconds: number;
}

/** Response of /models. */
export interface Models {
  models: Model[];
  limits: Limits;
  version: string;
}

/** Response of /health. */
export interface Health {
  /** ok */
  status: string;
}

/** Response to a request that failed. */
export interface ErrorResponse {
  error: string;
}

/** A line of /translate/stream: the best hypothesis so far or, in the last line, the translation. */
export interface TranslationUpdate {
  text: string;
  pieces: string[];
  /** log-probability with the length penalty */
  score: number;
  done: boolean;
  /** if it failed midway; this is the last line then */
  error: string | null;
  /** in the last line: of the trace, for GET /trace/{id} */
  id: string | null;
}

/** A property of a position encoding, measured; null if there is nothing to measure. */
export interface Law {
  /** unique, bounded, deterministic, even_steps, distance_only, symmetric, circles or shift */
  name: string;
  value: number | null;
  holds: boolean | null;
}

/** The linear map that should shift the code of any position by some steps. */
export interface Shift {
  steps: number;
  /** from the formula; otherwise fitted to all positions by least squares */
  exact: boolean;
  /** moved = matrix · before */
  matrix: number[][];
  /** position of the example */
  place: number;
  /** its code */
  before: number[];
  /** the code after the map */
  moved: number[];
  /** the code of the shifted position */
  after: number[];
}

/** The periods of the rotating pairs of features, compared with the bits of a binary counter. */
export interface Waves {
  shortest: number;
  longest: number;
  /** largest deviation of the ratio of neighbours from their common ratio; 0 is a perfect progression */
  geometric: number;
  /** a binary counter has 1: each bit flips half as often as the one before */
  pairs_per_halving: number | null;
}

/** Numbers of parameters: of the encoding itself, and of the attention layer above it. */
export interface Cost {
  scheme: number;
  layer_added: number;
  /** None where there is no code to set beside the token's vector */
  layer_concatenated: number | null;
}

/** A position encoding of some length and width. */
export interface Positions {
  scheme: string;
  /** names of all encodings */
  schemes: string[];
  /** embed (added to the vectors), rotate (queries and keys), bias (added to scores) or none */
  door: string;
  length: number;
  width: number;
  base: number;
  /** of each row of the codes; several numbers for grids and dialogue turns */
  places: number[][];
  /** [position][feature]; of a bias what each offset adds, [offset][head or feature] */
  codes: number[][];
  /** mean dot product of two positions 0, 1, 2 … steps apart */
  profile: number[];
  laws: Law[];
  waves: Waves | null;
  /** first distance at which the dot product is half of that at 0 */
  half_distance: number | null;
  /** all codes up to this position are distinct */
  distinct_up_to: number | null;
  /** the last position that was compared with all before it */
  compared_up_to: number;
  cost: Cost;
  shift: Shift | null;
  /** random unit-variance vectors as wide as a code, to add to codes or concatenate with them */
  words: number[][];
}

/** Predictions of one kind of pooling at the test points, and their mean squared error. */
export interface Curve {
  prediction: number[];
  error: number;
}

/** Attention as kernel regression: weights are softmax over i of -((x_test - x_i) · w)² / 2. */
export interface Regression {
  seed: number;
  noise: number;
  x: number[];
  y: number[];
  x_test: number[];
  /** without noise */
  y_test: number[];
  average: Curve;
  /** w = 1 */
  fixed: Curve;
  learned: Curve;
  /** with chosen_w */
  chosen: Curve;
  /** learned */
  w: number;
  chosen_w: number;
  /** during training of w */
  losses: number[];
  /** [x_test][x] */
  weights_fixed: number[][];
  weights_learned: number[][];
  weights_chosen: number[][];
}

/** One step of the computation: for each token some of its features, and the norm of all of them. */
export interface Stage {
  name: string;
  /** of the full vector */
  width: number;
  /** features included in values; for scores and weights the keys */
  columns: number[];
  /** [token][column] */
  values: number[][];
  norms: number[];
}

/**
 * One encoder layer, step by step, for one sentence.
 *
 * Stages are, in this order: token, position, input, normed, query, key, value, scores, weights, mixed, projected,
 * attention_sum, attention_out, feed_forward_in, inner, outer, feed_forward_sum, output. Where norms come before
 * sub-layers (norm_first), normed and feed_forward_in are normalised and attention_out and output are the sums
 * themselves; else normed is the input, and feed_forward_in is attention_out.
 */
export interface LayerSteps {
  model: string;
  text: string;
  pieces: string[];
  layer: number;
  head: number;
  n_layers: number;
  n_heads: number;
  d_model: number;
  d_head: number;
  d_ff: number;
  norm_first: boolean;
  /** of position encoding */
  scheme: string;
  stages: Stage[];
  /** largest difference from the output of the layer itself, relative to its largest value */
  error: number;
}

/** A validation during a run. */
export interface Validation {
  step: number;
  loss: number;
  bleu: number;
}

/** A variant with one seed; a failed run has an error and nothing else. */
export interface StudyRun {
  variant: string;
  /** of the model that the variant changes */
  part: string;
  changes: string[];
  seed: number;
  error: string | null;
  parameters: number | null;
  tokens_per_second: number | null;
  seconds: number | null;
  /** on the validation set */
  perplexity: number | null;
  bleu: number | null;
  curve: Validation[];
}

/** All runs so far; variants are in the order of the study, its baseline first. */
export interface Study {
  name: string;
  /** test or validation: the set of the BLEU scores */
  measured_on: string;
  runs: StudyRun[];
  /** variants whose BLEU differs significantly from the baseline's (Welch's t-test at 5 %) */
  clear: string[];
}

/** The studies of this server. */
export interface Studies {
  studies: Study[];
}
