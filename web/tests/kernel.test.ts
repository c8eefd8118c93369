import { describe, expect, it } from 'vitest';
import { adamStep, initialAdam, kernelWeights, leaveOneOut, pool, truth } from '../src/layout/kernel';
import { regression } from './recorded';

const { x, y, x_test: queries } = regression;
const close = (ours: ArrayLike<number>, theirs: number[]) =>
  theirs.forEach((value, i) => expect(ours[i]).toBeCloseTo(value, 5));

describe('kernel regression in the browser', () => {
  it('predicts what the server predicts', () => {
    close(pool(queries, x, y, 1), regression.fixed.prediction);
    close(pool(queries, x, y, regression.chosen_w), regression.chosen.prediction);
    close(pool(queries, x, y, regression.w), regression.learned.prediction);
    close(queries.map(truth), regression.y_test);
  });

  it('has the weights of the server', () => {
    queries.forEach((q, i) => close(kernelWeights(q, x, 1), regression.weights_fixed[i]));
    queries.forEach((q, i) => close(kernelWeights(q, x, regression.chosen_w), regression.weights_chosen[i]));
  });

  it('learns as the server does, step by step', () => {
    let adam = initialAdam(1);
    for (let step = 0; step < regression.losses.length; step++) adam = adamStep(adam, x, y);
    close(adam.losses, regression.losses);
    expect(adam.w).toBeCloseTo(regression.w, 5);
  });

  it('computes the gradient of its loss', () => {
    const h = 1e-5;
    const numeric = (leaveOneOut(x, y, 1.3 + h).loss - leaveOneOut(x, y, 1.3 - h).loss) / (2 * h);
    expect(leaveOneOut(x, y, 1.3).gradient).toBeCloseTo(numeric, 6);
  });

  it('gives no weight to a point that is left out, and none at all if it is the only one', () => {
    expect(kernelWeights(1, [1, 2, 3], 1, 1)[1]).toBe(0);
    expect([...kernelWeights(1, [1], 1, 0)]).toEqual([0]);
    expect([...kernelWeights(1, [1000], 50)]).toEqual([1]);
  });
});
