"""What layers cost, as a page of the documentation."""

from regard.study.complexity import ComplexityStudy, LayerReport, complexity_tables
from regard.study.complexity_layers import WAYS
from regard.study.page import Page

NEAR = 0.15


def complexity_page(study: ComplexityStudy, command: str) -> Page:
    """Says what the study asked, did and found."""
    return Page(
        title="Why attention: what layers cost",
        question="Self-attention takes n²d operations, a recurrence nd², a convolution of width k knd²; the sequential "
        "steps are 1, n and 1, the longest path from the first input to the last output is 1, n and about n/k. Is it "
        "so, and does time follow (S8.1)? What does it mean for training (S8.2)?",
        method=method(study),
        tables=complexity_tables(study),
        picture="Time over n and over d with fitted lines, memory over n, training speed over sentence lengths",
        findings=findings(study),
        command=command,
        signature=study.signature,
    )


def method(study: ComplexityStudy) -> list[str]:
    """Says what was done."""
    settings = study.settings
    return [
        "Operations are formulas, two for each multiplication with its addition, compared with PyTorch's own counter "
        "at the start of every run (`study/layers.py`); softmax, gates and sums are not counted.",
        "Steps and paths are measured, not derived: in one round a layer does all that can be done at once, and rounds "
        "are counted until the layer's result is there, and until the last output has a gradient by the first input "
        "(`study/depth.py`). The convolution looks at the place itself and k − 1 before it, so its path is "
        "(n − 1)/(k − 1) rounded up.",
        f"Times are of one pass without gradients in {study.dtype}, on a CPU the seconds that one core worked for it, "
        f"medians of {settings.rounds} repeats in which all layers and sizes take turns. A layer sits out sizes of "
        f"more than {settings.most:.0e} operations. Exponents are fitted to the {settings.last} largest sizes that "
        "each took part in, where the products outweigh what a call costs by itself; `study/complexity.py` says how "
        "sizes were chosen. In brackets stands what the theory says.",
        "Memory is the highest point of one pass beyond what was there before it, its output included. *attention* is "
        "the definition, which writes all n² weights out; *fused* is the kernel that does not.",
        "Training is the trainer's own step (forward, backward, clipping, AdamW) with the preset "
        f"{settings.race.preset}; *step by step* is the same Transformer with the same weights, given one "
        "target token at a time.",
    ]


def findings(study: ComplexityStudy) -> list[str]:
    """Puts the numbers into sentences."""
    found = [_law(layer) for layer in study.layers if layer.by_n.theory is not None]
    whole = next(layer for layer in study.layers if layer.by_n.theory is None)
    found.append(
        f"With its projections attention is n²d + nd²: counted exponents {whole.by_n.operations.exponent:.2f} and "
        f"{whole.by_d.operations.exponent:.2f}, measured {whole.by_n.time.exponent:.2f} and "
        f"{whole.by_d.time.exponent:.2f}, where one term alone would have 2 and 1, the other 1 and 2."
    )
    return [*found, _training(study)]


def _law(layer: LayerReport) -> str:
    """Says of one layer whether its times follow the theory."""
    words = []
    for curve in (layer.by_n, layer.by_d):
        gap = abs(curve.time.exponent - (curve.theory or 0.0))
        verdict = f"within {NEAR} of the theory" if gap <= NEAR else f"off by {gap:.2f}"
        words.append(f"{curve.axis}^{curve.time.exponent:.2f} ({verdict}: {curve.theory:g})")
    depth = layer.depths[-1]
    rounds = f"sequential steps {depth.steps}, longest path {depth.path} at n = {depth.n}"
    return f"{layer.name}: time grows as {words[0]} and {words[1]}; {rounds}."


def _training(study: ComplexityStudy) -> str:
    longest = study.settings.race.lengths[-1]
    at = {pace.way: pace.tokens_per_second for pace in study.paces if pace.length == longest}
    parallel, stepwise, recurrent = (at[way] for way in WAYS)
    return (
        f"With sentences of {longest} tokens teacher forcing in parallel is {parallel / stepwise:.1f} times as fast as "
        f"the same model step by step, and {parallel / recurrent:.1f} times as fast as the GRU with attention."
    )
