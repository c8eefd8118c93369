import { describe, expect, it } from 'vitest';
import { kernelWeights, learn, leaveOneOut, pool, startLearning, truth } from '../src/layout/kernel';
import { regression } from './recorded';

const { x, y, x_test: asked } = regression;
const close = (ours: ArrayLike<number>, theirs: number[]) =>
  theirs.forEach((value, i) => expect(ours[i]).toBeCloseTo(value, 5));

describe('kernel regression in the browser', () => {
  it('guesses what the server guesses', () => {
    close(pool(asked, x, y, 1), regression.fixed.prediction);
    close(pool(asked, x, y, regression.chosen_w), regression.chosen.prediction);
    close(pool(asked, x, y, regression.w), regression.learned.prediction);
    close(asked.map(truth), regression.y_test);
  });

  it('has the weights of the server', () => {
    asked.forEach((q, i) => close(kernelWeights(q, x, 1), regression.weights_fixed[i]));
    asked.forEach((q, i) => close(kernelWeights(q, x, regression.chosen_w), regression.weights_chosen[i]));
  });

  it('learns as the server learns, step by step', () => {
    let learner = startLearning(1);
    for (let step = 0; step < regression.losses.length; step++) learner = learn(learner, x, y);
    close(learner.losses, regression.losses);
    expect(learner.w).toBeCloseTo(regression.w, 5);
  });

  it('knows the slope of its loss', () => {
    const h = 1e-5;
    const numeric = (leaveOneOut(x, y, 1.3 + h).loss - leaveOneOut(x, y, 1.3 - h).loss) / (2 * h);
    expect(leaveOneOut(x, y, 1.3).slope).toBeCloseTo(numeric, 6);
  });

  it('gives nothing to a point that is left out, and nothing at all where there is no other', () => {
    expect(kernelWeights(1, [1, 2, 3], 1, 1)[1]).toBe(0);
    expect([...kernelWeights(1, [1], 1, 0)]).toEqual([0]);
    expect([...kernelWeights(1, [1000], 50)]).toEqual([1]);
  });
});
