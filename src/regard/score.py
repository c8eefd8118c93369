"""BLEU and chrF with signatures: of a corpus, of each sentence, with intervals, and of one system against others."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest, Result

from regard.data.normalise import language_code

MAX_RESAMPLED = 20_000_000  # sentences in all resamples together: sacreBLEU has them in memory at once


@dataclass(frozen=True)
class Scores:
    """How near n outputs are to their references, from 0 to 100."""

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str
    n: int


@dataclass(frozen=True)
class SystemScore:
    """One of several systems on the same sentences; p is that of its difference from the first system."""

    name: str
    bleu: float
    bleu_interval: tuple[float, float]  # 95 % of the resampled corpora lie in it
    bleu_p: float | None  # None for the first system
    chrf: float
    chrf_interval: tuple[float, float]
    chrf_p: float | None


@dataclass(frozen=True)
class SentenceScore:
    """How near one output is to its references; BLEU with sacreBLEU's smoothing of sentences."""

    bleu: float
    chrf: float


def score(
    outputs: Sequence[str],
    references: Sequence[str],
    tgt_lang: str,
    lowercase: bool = False,
    others: Sequence[Sequence[str]] = (),
) -> Scores:
    """Compare each output with its reference by sacreBLEU (Post 2018, arXiv:1804.08771) and chrF (Popović 2015).

    Where a sentence may be translated in several ways, `others` are further references.
    """
    check_lengths(outputs, [references, *others])
    bleu, chrf = _metrics(tgt_lang, lowercase)
    found = [metric.corpus_score(outputs, [references, *others]).score for metric in (bleu, chrf)]
    return Scores(*found, *(str(metric.get_signature()) for metric in (bleu, chrf)), n=len(outputs))


def score_sentences(
    outputs: Sequence[str], references: Sequence[Sequence[str]], tgt_lang: str, lowercase: bool = False
) -> list[SentenceScore]:
    """Compare each output by itself with its references, which come as one list for each set of references."""
    check_lengths(outputs, references)
    bleu = BLEU(tokenize=words(tgt_lang), lowercase=lowercase, effective_order=True)
    chrf = CHRF(lowercase=lowercase)
    rows = zip(outputs, *references, strict=True)
    return [SentenceScore(*(m.sentence_score(text, known).score for m in (bleu, chrf))) for text, *known in rows]


def compare(
    systems: Mapping[str, Sequence[str]], references: Sequence[Sequence[str]], tgt_lang: str, resamples: int = 1000
) -> list[SystemScore]:
    """Score systems with intervals, and test each against the first by paired bootstrap (Koehn 2004, W04-3250)."""
    for outputs in systems.values():
        check_lengths(outputs, references)
    bleu, chrf = _metrics(tgt_lang, False)
    resamples = max(100, min(resamples, MAX_RESAMPLED // len(references[0])))
    logging.getLogger("sacrebleu").setLevel(logging.WARNING)  # it reports every step
    test = PairedTest([*systems.items()], {"BLEU": bleu, "chrF": chrf}, references, "bs", resamples)
    _, bleus, chrfs = test()[1].values()  # the first are the names
    rows = zip(systems, bleus, chrfs, strict=True)
    return [SystemScore(name, *_numbers(b, bleus[0]), *_numbers(c, chrfs[0])) for name, b, c in rows]


def _numbers(result: Result | str, first: Result | str) -> tuple[float, tuple[float, float], float | None]:
    assert isinstance(result, Result) and isinstance(first, Result), "only the first column has names"
    assert result.mean is not None and result.ci is not None, "a bootstrap has both"
    interval = float(result.mean - result.ci), float(result.mean + result.ci)
    p = result.p_value if result.score != first.score else 1.0  # where no resample differs, the test takes it for rare
    return float(result.score), interval, None if result is first or p is None else float(p)


def check_lengths(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Raise ValueError where an output has no reference, or there is nothing to score."""
    for each in references:
        if len(outputs) != len(each):
            raise ValueError(f"there must be one reference for each output, got {len(each)} for {len(outputs)}")
    if not outputs:
        raise ValueError("there must be an output to score, got 0")


def _metrics(tgt_lang: str, lowercase: bool) -> tuple[BLEU, CHRF]:
    return BLEU(tokenize=words(tgt_lang), lowercase=lowercase), CHRF(lowercase=lowercase)


def words(tgt_lang: str) -> str:
    """Name sacreBLEU's way to find words in a language: characters where it is written without spaces."""
    code = language_code(tgt_lang)
    if code.startswith(("zh", "cmn", "yue")):
        return "zh"
    return "char" if code in {"ja", "jpn"} else "13a"
