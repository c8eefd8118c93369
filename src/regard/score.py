"""BLEU and chrF with signatures."""

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from regard.data.normalise import language_code


@dataclass(frozen=True)
class Scores:
    """How near n outputs are to their references, from 0 to 100."""

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str
    n: int


def score(outputs: Sequence[str], references: Sequence[str], tgt_lang: str, lowercase: bool = False) -> Scores:
    """Compare each output with its reference by sacreBLEU (Post 2018, arXiv:1804.08771) and chrF (Popović 2015)."""
    if len(outputs) != len(references):
        raise ValueError(f"there must be one reference for each output, got {len(references)} for {len(outputs)}")
    if not outputs:
        raise ValueError("there must be an output to score, got 0")
    bleu, chrf = BLEU(tokenize=words(tgt_lang), lowercase=lowercase), CHRF(lowercase=lowercase)
    found = [metric.corpus_score(outputs, [references]).score for metric in (bleu, chrf)]
    return Scores(*found, *(str(metric.get_signature()) for metric in (bleu, chrf)), n=len(outputs))


def words(tgt_lang: str) -> str:
    """Name sacreBLEU's way to find words in a language: characters where it is written without spaces."""
    code = language_code(tgt_lang)
    if code.startswith(("zh", "cmn", "yue")):
        return "zh"
    return "char" if code in {"ja", "jpn"} else "13a"
