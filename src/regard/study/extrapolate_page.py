"""How position schemes fare beyond the lengths that they learned from, as a page of the documentation."""

from regard.study.extrapolate import ExtrapolateStudy, extrapolate_table
from regard.study.page import Page

TASKS = {
    "chain": "*chain*: each symbol depends on the two before it by a fixed random table. Nothing farther back matters, "
    "so that texts of all lengths are equally hard: what is lost on longer ones is the model's own, to places that it "
    "never saw or to attention that is spread over more of them.",
    "copy": "*copy*: the target is the source, of which no symbol comes twice, so that what comes next stands beside "
    "what was just said. Who finds it by its absolute place must know places that were never learned.",
}


def extrapolate_page(study: ExtrapolateStudy, command: str) -> Page:
    """Says what the study asked, did and found."""
    settings = study.settings
    layers = f"{settings.n_encoder_layers} + {settings.n_decoder_layers} layers of width {settings.d_model}"
    return Page(
        title="Beyond the lengths that were learned",
        question="A model learns from texts of at most n tokens. What does it make of texts of 2n, 3n and 4n (S6.6)?",
        method=[
            TASKS[settings.task],
            f"The same small Transformer for all ({layers}, {settings.n_heads} heads, norms first, no dropout), "
            f"{settings.steps} steps of {settings.rows} texts with n/2 to n = {settings.longest} symbols, AdamW with a "
            f"cosine from {settings.lr:g}; only the position scheme is exchanged.",
            f"Judged on {settings.judged} texts of each length, the true symbols before each given. The end of a text "
            "is neither learned nor judged: that a text ends by n is true of all that was seen.",
            "A learned table has n + 1 rows and refuses what lies beyond; the half wave is told the longest text "
            "beforehand; the others need to know nothing. *sinusoidal beside* sets the code beside the token's vector. "
            "*index* adds the same number to every feature, which a layer norm before each sub-layer takes away again: "
            "here it is *none*.",
        ],
        tables=[extrapolate_table(study)],
        picture="Loss against that at n for each scheme and length, and loss at each place of the longest texts",
        findings=findings(study),
        command=command,
        signature=study.signature,
    )


def findings(study: ExtrapolateStudy) -> list[str]:
    """Puts the numbers into sentences."""
    last = study.settings.longest * len(study.schemes[0].lengths)
    known = [(scheme.name, scheme.lengths[-1].ratio) for scheme in study.schemes]
    ranked = sorted((ratio.mean, name) for name, ratio in known if ratio is not None)
    ending = [f"{scheme.name} ({scheme.refused})" for scheme in study.schemes if scheme.refused is not None]
    found = [f"Loss at {last} against that at {study.settings.longest}, best first: {_ranking(ranked)}."]
    at_n = sorted((s.lengths[0].loss.mean, s.name) for s in study.schemes if s.lengths[0].loss is not None)
    found.append(f"Loss at the lengths that were learned, best first: {_ranking(at_n, '')}.")
    least = ", ".join(f"{loss:.3f} at {length}" for length, loss in study.least.items())
    found.append(f"The least loss there can be, of who knows the rule: {least}.")
    return [*found, *(f"Not defined beyond what was learned: {each}." for each in ending)]


def _ranking(ranked: list[tuple[float, str]], times: str = "×") -> str:
    return ", ".join(f"{name} {times}{value:.2f}" if times else f"{name} {value:.3f}" for value, name in ranked)
