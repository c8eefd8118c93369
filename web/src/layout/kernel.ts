/** Kernel regression as attention: points are keys, their heights are values (S1). */

/** Gives α = softmax over i of −((q − x_i) w)² / 2; `skip` is left out. */
export function kernelWeights(q: number, x: ArrayLike<number>, w: number, skip = -1): Float64Array {
  const weights = new Float64Array(x.length);
  let most = -Infinity;
  for (let i = 0; i < x.length; i++) {
    weights[i] = i === skip ? -Infinity : -(((q - x[i]) * w) ** 2) / 2;
    most = Math.max(most, weights[i]);
  }
  if (most === -Infinity) return weights.fill(0);
  let sum = 0;
  for (let i = 0; i < x.length; i++) sum += weights[i] = Math.exp(weights[i] - most);
  for (let i = 0; i < x.length; i++) weights[i] /= sum;
  return weights;
}

/** Gives Σ α(q, x_i) y_i for each query. */
export function pool(queries: ArrayLike<number>, x: ArrayLike<number>, y: ArrayLike<number>, w: number): number[] {
  return Array.from(queries as ArrayLike<number>, (q) => mix(kernelWeights(q, x, w), y));
}

function mix(weights: Float64Array, y: ArrayLike<number>): number {
  let sum = 0;
  for (let i = 0; i < weights.length; i++) sum += weights[i] * y[i];
  return sum;
}

/**
 * Gives the mean squared error of each point predicted from all others, and its derivative by w.
 *
 * With a_i = −(d_i w)²/2 and d_i = x − x_i: ∂f/∂w = Σ α_i y_i (a'_i − ā'), where a'_i = −d_i² w and ā' = Σ α_i a'_i.
 */
export function leaveOneOut(x: ArrayLike<number>, y: ArrayLike<number>, w: number): { loss: number; slope: number } {
  let [loss, slope] = [0, 0];
  for (let i = 0; i < x.length; i++) {
    const weights = kernelWeights(x[i], x, w, i);
    let [f, mean, moved] = [0, 0, 0];
    for (let j = 0; j < x.length; j++) {
      const steep = -((x[i] - x[j]) ** 2) * w;
      f += weights[j] * y[j];
      mean += weights[j] * steep;
      moved += weights[j] * y[j] * steep;
    }
    loss += (f - y[i]) ** 2 / x.length;
    slope += (2 * (f - y[i]) * (moved - f * mean)) / x.length;
  }
  return { loss, slope };
}

export interface Learner {
  w: number;
  mean: number; // of slopes
  square: number; // of their squares
  step: number;
  losses: number[];
}

export function startLearning(w: number): Learner {
  return { w, mean: 0, square: 0, step: 0, losses: [] };
}

const [RATE, KEEP, KEEP_SQUARE, TINY] = [0.05, 0.9, 0.999, 1e-8]; // Adam's usual, and the experiment's rate

/** Makes one step of Adam on w. */
export function learn(learner: Learner, x: ArrayLike<number>, y: ArrayLike<number>): Learner {
  const { loss, slope } = leaveOneOut(x, y, learner.w);
  const step = learner.step + 1;
  const mean = KEEP * learner.mean + (1 - KEEP) * slope;
  const square = KEEP_SQUARE * learner.square + (1 - KEEP_SQUARE) * slope * slope;
  const down = mean / (1 - KEEP ** step) / (Math.sqrt(square / (1 - KEEP_SQUARE ** step)) + TINY);
  return { w: learner.w - RATE * down, mean, square, step, losses: [...learner.losses, loss] };
}

/** The curve without noise; x must not be negative. */
export function truth(x: number): number {
  return 2 * Math.sin(x) + x ** 0.8;
}
