/** One layer step by step: which stages there are, and what each of them shows. */

import type { Key } from '../i18n';
import type { Stage, Walk } from '../trace';

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

/** Names the text of a stage, which depends on where the model normalises and whether it adds positions. */
export function stageText(walk: Walk, stage: Stage): Key {
  const nothing = stage.values.every((row) => row.every((value) => value === 0));
  if (stage.name === 'position' && nothing) return 'stage.position.none';
  if (stage.name === 'normed' && !walk.norm_first) return 'stage.normed.after';
  if (walk.norm_first && ['attention_out', 'feed_forward_in', 'output'].includes(stage.name))
    return `stage.${stage.name}.first` as Key;
  return `stage.${stage.name}.text` as Key;
}

/** Tells whether the columns of a stage are words that are looked at, and not features. */
export function overKeys(stage: Stage): boolean {
  return stage.name === 'scores' || stage.name === 'weights';
}
