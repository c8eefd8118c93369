// Written by `python tools/typescript.py > web/src/trace.ts` from the dataclasses in src/regard/serve.

/** A word, and the places of its pieces. */
export interface Word {
  text: string;
  places: number[];
}

/** The pieces of one side, ▁ where a space stood, and the words that they make. */
export interface Side {
  pieces: string[];
  words: Word[];
}

/**
 * All heads of one kind of attention.
 *
 * `weights` are bytes, layer by layer, head by head, query by query, key by key: round(255·√w), so that w is
 * (b / 255)². They are packed by raw deflate and written in base64.
 */
export interface Kind {
  /** encoder (source looks at source), decoder (read at read) or cross (read at source) */
  kind: string;
  n_layers: number;
  n_heads: number;
  n_queries: number;
  n_keys: number;
  weights: string;
  /** [layer][head]: 0 looks at one key, 1 at all alike; null: no such head */
  entropy: ((number | null)[])[];
}

/** One piece that might have followed. */
export interface Option {
  piece: string;
  log_prob: number;
}

/** One piece that was said, and what might have been said in its place, likeliest first. */
export interface Step {
  piece: string;
  /** as the search had it */
  log_prob: number | null;
  /** as the plain model has it */
  replayed: number | null;
  alternatives: Option[];
}

/** One piece that the search was offered after those before it. */
export interface Node {
  number: number;
  /** the node before, or -1 */
  parent: number;
  /** pieces before it */
  step: number;
  piece: string;
  /** its log-probability */
  gain: number | null;
  /** and that of all up to it */
  total: number | null;
  /** kept, ended, dropped or open */
  fate: string;
}

/** A hypothesis that the search ended with, finished or not. */
export interface Leaf {
  node: number;
  text: string;
  /** by which hypotheses compare */
  score: number | null;
  log_prob: number | null;
  finished: boolean;
}

/** Everything that the search thought of; node i is nodes[i], and parents stand before their children. */
export interface Tree {
  nodes: Node[];
  /** where the best hypothesis ends; -1 where nothing was written */
  best: number;
  /** the nodes up to it */
  best_path: number[];
  /** the best first */
  leaves: Leaf[];
}

/** How well what is shown agrees with what was computed; null where there is nothing to compare with. */
export interface Checks {
  /** largest difference of weights @ v from an attention's output, as a share of its largest */
  weights: number | null;
  /** where that is */
  look: string;
  /** largest difference of a log-probability in the search and in the replay */
  log_prob: number | null;
}

/** The norms of the residual stream around one sub-layer, one number for each token. */
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

/** The head of cross attention whose weights were measured to link words best, or a mean of heads. */
export interface Aligning {
  /** null: all layers */
  layer: number | null;
  /** null: all heads */
  head: number | null;
  /** say: a row belongs to the piece that is said there; read: to the one that was said a step before */
  at: string;
}

/** How the pieces were chosen. */
export interface Search {
  /** greedy, beam or sample */
  method: string;
  beam: number;
  length_penalty: number;
}

/** One run, ready to be drawn. Row t of decoder and cross attention is read.pieces[t], and says target.pieces[t]. */
export interface View {
  /** by which the server knows the run; null in a file */
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
  /** the node of the tree whose path this is */
  leaf: number;
  /** which part of a text that was too long to be read at once */
  part: number;
  n_parts: number;
  checks: Checks;
  flows: Flow[];
  /** null where nobody measured it */
  aligning: Aligning | null;
}

/** One of the terms that scores are sums of. */
export interface Term {
  name: string;
  values: number[][];
}

/** One head with its numbers, [query][key], to seven digits. */
export interface Head {
  kind: string;
  layer: number;
  head: number;
  queries: string[];
  keys: string[];
  weights: number[][];
  /** of each query, in nats */
  entropy: number[];
  /** who may look at whom */
  allowed: boolean[][];
  /** before the softmax, of forbidden pairs too; null where they are not known */
  scores: number[][] | null;
  /** which add up to the scores */
  terms: Term[];
  /** by how much they do not, as a share of the largest score */
  error: number | null;
}

/** What lies inside a saved page: runs, and heads of the first of them. */
export interface Saved {
  views: View[];
  heads: Head[];
}

/** A stretch of the text that may answer: its characters from … up to, and its share of all stretches. */
export interface Stretch {
  text: string;
  start: number;
  stop: number;
  probability: number;
}

/**
 * A question, its likeliest answers, and the reading that found the best: one window of the text.
 *
 * The places of words are pieces of `view.source`, where the question stands before the text. Attention is of one
 * kind, `encoder`.
 */
export interface Answered {
  reader: string;
  question: Word[];
  /** of the window */
  context: Word[];
  /** its words that answer, from … up to */
  answer: number[];
  /** the window is the whole text */
  whole: boolean;
  /** best first */
  stretches: Stretch[];
  /** the chance that the text has no answer */
  nowhere: number;
  view: View;
}

/** The readers that this server was told of. */
export interface Readers {
  readers: string[];
}

/** One line of the stream: the prompt's pieces first, then each piece as it is written. */
export interface WrotePiece {
  pieces: string[];
  log_prob: number | null;
  /** mean weights of all heads on the pieces before it, the last being that of the newest */
  looked: number[];
  done: boolean;
  error: string | null;
}

/** The writers that this server was told of. */
export interface Writers {
  writers: string[];
}

/** Answer of /translate: strings for one text, lists for a list of texts. */
export interface Translated {
  translatedText: string | string[];
  /** where some were asked for, without the best */
  alternatives: string[] | string[][] | null;
  detectedLanguage: Detected | Detected[] | null;
}

/** The language that a text seems to be in, by its script. */
export interface Detected {
  language: string;
  /** per cent */
  confidence: number;
}

/** One language that can be translated from. */
export interface Language {
  code: string;
  name: string;
  targets: string[];
}

/** What a model reached. */
export interface Scores {
  bleu: number | null;
  /** test or valid */
  measured_on: string | null;
}

/** One model of this server. */
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
  scores: Scores;
  loaded: boolean;
}

/** What this server takes. */
export interface Limits {
  /** of all texts of a request together */
  max_chars: number;
  /** of a text that is looked into */
  max_trace_chars: number;
  max_texts: number;
  max_beam: number;
  /** bytes */
  max_body: number;
}

/** Answer of /models. */
export interface Models {
  models: Model[];
  limits: Limits;
  version: string;
}

/** Answer of /health. */
export interface Health {
  /** ok */
  status: string;
}

/** Answer to what cannot be done. */
export interface Failure {
  error: string;
}

/** One line of /translate/stream: the best hypothesis so far, or, in the last line, the translation. */
export interface Written {
  text: string;
  pieces: string[];
  /** log-probability by its length */
  score: number;
  done: boolean;
  /** where something went wrong on the way; then this is the last line */
  error: string | null;
}

/** One law of a position scheme, measured; null where there is nothing to measure. */
export interface Law {
  /** unique, bounded, deterministic, even_steps, distance_only, symmetric, circles or shift */
  name: string;
  /** number in the specification */
  tag: string;
  value: number | null;
  holds: boolean | null;
}

/** The periods of features that turn in pairs. */
export interface Waves {
  shortest: number;
  longest: number;
  /** how far they are from a geometric progression; 0 is perfect */
  geometric: number;
  /** a binary counter has 1 */
  pairs_per_halving: number | null;
}

/** Parameters: the scheme's own, and those of the attention layer above it. */
export interface Cost {
  scheme: number;
  layer_added: number;
  layer_concatenated: number | null;
}

/** One linear map that should take the code of every place to that of the place some steps on. */
export interface Shift {
  steps: number;
  /** by its formula, or else fitted to all places by least squares */
  exact: boolean;
  /** moved = matrix · before */
  matrix: number[][];
  /** the place of the example */
  place: number;
  /** its code */
  before: number[];
  /** what the map makes of it */
  moved: number[];
  /** the code it should be */
  after: number[];
}

/** One position scheme at one length and width. */
export interface Positions {
  scheme: string;
  /** all there are */
  schemes: string[];
  /** embed (added to the vectors), rotate (queries and keys), bias (added to scores) or none */
  door: string;
  length: number;
  width: number;
  base: number;
  /** of each row of the codes; several numbers on grids and in turns */
  places: number[][];
  /** [place][feature]; of a bias what each offset adds, [offset][head or feature] */
  codes: number[][];
  /** mean product of two places 0, 1, 2 … steps apart */
  profile: number[];
  laws: Law[];
  waves: Waves | null;
  /** first distance at which the product is half of that at 0 */
  half_distance: number | null;
  /** all codes up to this position differ */
  distinct_up_to: number | null;
  cost: Cost;
  shift: Shift | null;
  /** random vectors of variance 1 as wide as a code: to add to codes, or to set beside them */
  words: number[][];
}

/** One way of pooling: its prediction at each test point, and its mean squared error there. */
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
  /** with the width that was asked for */
  chosen: Curve;
  /** that was learned */
  w: number;
  chosen_w: number;
  /** while w was learned */
  losses: number[];
  /** [x_test][x] */
  weights_fixed: number[][];
  weights_learned: number[][];
  weights_chosen: number[][];
}

/** One step of the computation: for each token some of its numbers, and the norm of all of them. */
export interface Stage {
  name: string;
  /** of the whole vector */
  width: number;
  /** which features are shown; of scores and weights the keys */
  columns: number[];
  /** [token][column] */
  values: number[][];
  norms: number[];
}

/**
 * One sentence through one encoder layer.
 *
 * Stages are, in this order: token, position, input, normed, query, key, value, scores, weights, mixed, projected,
 * attention_sum, attention_out, feed_forward_in, inner, outer, feed_forward_sum, output. Where norms come before
 * sub-layers (norm_first), normed and feed_forward_in are normalised and attention_out and output are the sums
 * themselves; else normed is the input, and feed_forward_in is attention_out.
 */
export interface Walk {
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
  /** of positions */
  scheme: string;
  stages: Stage[];
  /** largest difference from what the layer itself puts out, as a share of its largest number */
  error: number;
}

/** One validation of a run. */
export interface Judged {
  step: number;
  loss: number;
  bleu: number;
}

/** One variant with one seed; one that failed says why, and brought nothing else. */
export interface StudyRun {
  variant: string;
  /** that was exchanged */
  part: string;
  changes: string[];
  seed: number;
  error: string | null;
  parameters: number | null;
  tokens_per_second: number | null;
  seconds: number | null;
  /** of the validation text */
  perplexity: number | null;
  bleu: number | null;
  curve: Judged[];
}

/** All runs so far; variants stand in the order of the study, its baseline first. */
export interface Study {
  name: string;
  /** test or validation: what BLEU is of */
  measured_on: string;
  runs: StudyRun[];
  /** variants whose BLEU differs from the baseline's by more than chance (Welch's t-test at 5 %) */
  clear: string[];
}

/** The studies that this server was told of. */
export interface Studies {
  studies: Study[];
}
