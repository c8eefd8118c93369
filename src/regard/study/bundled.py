"""The small parallel text that comes with the package, so that studies of models need nothing else."""

from pathlib import Path

TEXT = Path(__file__).with_name("sentences.tsv")
LANGUAGES = ("zh", "en")


def bundled_pairs(src_lang: str, tgt_lang: str) -> list[tuple[str, str]]:
    """Gives everyday sentences in Chinese and English, written for this purpose, in the order that a model reads."""
    lines = [line.split("\t") for line in TEXT.read_text(encoding="utf-8").splitlines()]
    if (src_lang, tgt_lang) == LANGUAGES:
        return [(chinese, english) for chinese, english in lines]
    if (tgt_lang, src_lang) == LANGUAGES:
        return [(english, chinese) for chinese, english in lines]
    raise ValueError(
        f"the text that comes along is Chinese and English, and the model translates {src_lang} to {tgt_lang}: "
        "give a text with --data"
    )
