/** Kernel regression as attention: the x of data points are keys, their y are values. */

/** Return α = softmax over i of −((q − x_i) w)² / 2, without the point `skip`. */
export function kernelWeights(q: number, x: ArrayLike<number>, w: number, skip = -1): Float64Array {
  const weights = new Float64Array(x.length);
  let max = -Infinity;
  for (let i = 0; i < x.length; i++) {
    weights[i] = i === skip ? -Infinity : -(((q - x[i]) * w) ** 2) / 2;
    max = Math.max(max, weights[i]);
  }
  if (max === -Infinity) return weights.fill(0);
  let sum = 0;
  for (let i = 0; i < x.length; i++) sum += weights[i] = Math.exp(weights[i] - max);
  for (let i = 0; i < x.length; i++) weights[i] /= sum;
  return weights;
}

/** Return Σ α(q, x_i) y_i for each query. */
export function pool(queries: ArrayLike<number>, x: ArrayLike<number>, y: ArrayLike<number>, w: number): number[] {
  return Array.from(queries as ArrayLike<number>, (q) => weightedSum(kernelWeights(q, x, w), y));
}

function weightedSum(weights: Float64Array, y: ArrayLike<number>): number {
  let sum = 0;
  for (let i = 0; i < weights.length; i++) sum += weights[i] * y[i];
  return sum;
}

/**
 * Return the mean squared error of each point predicted from all others, and its gradient with respect to w.
 *
 * With a_i = −(d_i w)²/2 and d_i = x − x_i: ∂f/∂w = Σ α_i y_i (a'_i − ā'), where a'_i = −d_i² w and ā' = Σ α_i a'_i.
 */
export function leaveOneOut(x: ArrayLike<number>, y: ArrayLike<number>, w: number): { loss: number; gradient: number } {
  let [loss, gradient] = [0, 0];
  for (let i = 0; i < x.length; i++) {
    const weights = kernelWeights(x[i], x, w, i);
    let [f, mean, mixed] = [0, 0, 0];
    for (let j = 0; j < x.length; j++) {
      const derivative = -((x[i] - x[j]) ** 2) * w;
      f += weights[j] * y[j];
      mean += weights[j] * derivative;
      mixed += weights[j] * y[j] * derivative;
    }
    loss += (f - y[i]) ** 2 / x.length;
    gradient += (2 * (f - y[i]) * (mixed - f * mean)) / x.length;
  }
  return { loss, gradient };
}

/** The state of Adam while it learns w. */
export interface Adam {
  w: number;
  m: number; // running mean of gradients
  v: number; // running mean of squared gradients
  step: number;
  losses: number[];
}

export function initialAdam(w: number): Adam {
  return { w, m: 0, v: 0, step: 0, losses: [] };
}

const [LEARNING_RATE, BETA1, BETA2, EPSILON] = [0.05, 0.9, 0.999, 1e-8];

export function adamStep(adam: Adam, x: ArrayLike<number>, y: ArrayLike<number>): Adam {
  const { loss, gradient } = leaveOneOut(x, y, adam.w);
  const step = adam.step + 1;
  const m = BETA1 * adam.m + (1 - BETA1) * gradient;
  const v = BETA2 * adam.v + (1 - BETA2) * gradient * gradient;
  const update = m / (1 - BETA1 ** step) / (Math.sqrt(v / (1 - BETA2 ** step)) + EPSILON);
  return { w: adam.w - LEARNING_RATE * update, m, v, step, losses: [...adam.losses, loss] };
}

/** The function without noise, for x ≥ 0. */
export function truth(x: number): number {
  return 2 * Math.sin(x) + x ** 0.8;
}
