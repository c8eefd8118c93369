"""What the page about the position probe says."""

from regard.study.page import Page
from regard.study.probe import ProbeStudy, StackReadings, kind, probe_table, short, small_table, updates_table


def probe_page(study: ProbeStudy) -> Page:
    """Tells the question, the method, and what was found."""
    return Page(
        "Is position lost in the upper layers?",
        "Positions enter a Transformer once, at the bottom. A linear probe asks at each layer how well the stream "
        "still tells where a token stands, and whether residual connections are what carries it up (S7.4).",
        _method(study),
        [probe_table(study), updates_table(study), small_table(study)],
        f"R² of a linear probe for the position along the stream of {study.model}, and of small models with and "
        "without residual connections",
        [*(_stack(stack) for stack in study.stacks), *(_updates(stack) for stack in study.stacks), *_small(study)],
    )


def _method(study: ProbeStudy) -> list[str]:
    settings, small = study.settings, study.settings.small
    seeds = ", ".join(str(settings.seed + n) for n in range(settings.small_seeds))
    words = " and ".join(f"{n:,} words of the {stack}" for stack, n in study.n_words.items())
    return [
        f"{min(study.n_pairs, settings.most)} pairs are read under teacher forcing; the vectors of {words} are kept "
        "before each sub-layer. Begin and end of a sentence are left out: they are no words, and tell their place by "
        "what they are.",
        "Ridge regression from the vector to the place; its strength is chosen on a part of the sentences that it "
        "learns from, and R² is measured on a quarter of the sentences that it has not seen. No guess goes beyond the "
        "places that it has learned from. "
        f"{settings.splits} splits, seed {settings.seed}.",
        "Controls: the codes alone, the words' own vectors alone (some words stand early, full stops last), and places "
        "in a shuffled order.",
        "Without residual connections, first way: what each sub-layer of the trained model writes, read by itself. The "
        "trained model itself cannot be run without its sums: it has never seen such vectors.",
        f"Second way: small models ({small.n_encoder_layers} + {small.n_decoder_layers} layers, width {small.d_model}, "
        f"{small.n_heads} heads, sinusoidal positions, norm {small.norm_place} the sub-layer) are taught on four "
        f"fifths of the same pairs for {small.steps} steps, seeds {seeds}, from the same start "
        "with and without the sum; the state with the best loss on the last fifth is kept. Both are also probed before "
        "they have learned anything.",
    ]


def _stack(stack: StackReadings) -> str:
    first, last = stack.points[0], stack.points[-1]
    alone = "" if stack.codes is None else f"the codes alone give {short(stack.codes.place)}, "
    words = "" if stack.words is None else f"words alone {short(stack.words.place)}; "
    lowest = min(stack.points, key=lambda reading: reading.place.mean)
    return (
        f"{stack.stack}: {alone}{words}the stream {short(first.place)} at the embedding and {short(last.place)} after "
        f"the last layer (lowest {short(lowest.place)} at {lowest.point}); as a share of the sentence "
        f"{short(first.share)} and {short(last.share)}; shuffled {short(last.shuffled)}."
    )


def _updates(stack: StackReadings) -> str:
    best, worst = (pick(stack.updates, key=lambda each: each.place.mean) for pick in (max, min))
    ends = [f"{short(each.place)} ({each.point})" for each in (worst, best)]
    return f"{stack.stack}, updates alone: from {ends[0]} to {ends[1]}."


def _small(study: ProbeStudy) -> list[str]:
    found = {kind(each): each for each in study.small}
    lines = []
    for number, stack in enumerate(found[True, True].stacks):
        tops = {which: each.stacks[number].points[-1].place for which, each in found.items()}
        lines.append(
            f"Small models, {stack.stack}, after the last layer: with residuals {short(tops[True, True])} (untaught "
            f"{short(tops[True, False])}), without {short(tops[False, True])} (untaught {short(tops[False, False])})."
        )
    losses = {which: each.loss for which, each in found.items()}
    lines.append(
        f"Small models, loss of a held-out token: {losses[True, True].mean:.2f} with residuals, "
        f"{losses[False, True].mean:.2f} without; untaught {losses[True, False].mean:.2f} and "
        f"{losses[False, False].mean:.2f}."
    )
    return lines
