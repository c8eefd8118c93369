/** One encoder layer step by step: the groups of its stages, and their texts. */

import type { Key } from '../i18n';
import type { Stage, LayerSteps } from '../trace';

export type Group = 'input' | 'attention' | 'feed_forward';

const GROUPS: Record<string, Group> = {
  token: 'input',
  position: 'input',
  input: 'input',
  feed_forward_in: 'feed_forward',
  inner: 'feed_forward',
  outer: 'feed_forward',
  feed_forward_sum: 'feed_forward',
  output: 'feed_forward',
};

export function groupOf(stage: string): Group {
  return GROUPS[stage] ?? 'attention';
}

/** Return the key of a stage's text, which depends on pre- or post-norm and on whether positions are added. */
export function stageText(steps: LayerSteps, stage: Stage): Key {
  const allZero = stage.values.every((row) => row.every((value) => value === 0));
  if (stage.name === 'position' && allZero) return 'stage.position.none';
  if (stage.name === 'normed' && !steps.norm_first) return 'stage.normed.after';
  if (steps.norm_first && ['attention_out', 'feed_forward_in', 'output'].includes(stage.name))
    return `stage.${stage.name}.first` as Key;
  return `stage.${stage.name}.text` as Key;
}

/** Tell whether the columns of a stage are keys, and not dimensions. */
export function overKeys(stage: Stage): boolean {
  return stage.name === 'scores' || stage.name === 'weights';
}
