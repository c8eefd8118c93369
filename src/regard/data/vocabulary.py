"""Training a tokenizer on text."""

import io
import random
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

import sentencepiece

from regard.config import TextSettings, choose
from regard.data.normalise import normalise
from regard.data.tokenizer import Tokenizer, train_characters

KINDS = {"unigram": "unigram", "bpe": "bpe", "characters": "char"}
LONGEST_PIECE = 16  # characters
MAX_PAIRS = 500_000  # a larger text is sampled
# Seed pieces of unigram training for each piece of the vocabulary: the library's default of a million takes 1.6 times
# as long for 8,000 pieces and 135,000 pairs, and segments the text into 0.4 % more pieces.
CANDIDATES = 20
# Chinese, Japanese and Korean have thousands of rare characters; they are left to byte fallback.
MANY_SIGNS = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]")
COVERAGE = {True: 0.9995, False: 1.0}
RESERVED = ("<pad>", "<unk>", "<s>", "</s>")
BYTE = re.compile("<0x[0-9A-F]{2}>")
# Sums of floats depend on how the text is divided among threads, so this number affects the result.
N_THREADS = 4

Log = Callable[[str], None]


def train_tokenizer(
    pairs: Iterable[tuple[str, str]], settings: TextSettings, log: Log, seed: int, max_pairs: int = MAX_PAIRS
) -> Tokenizer:
    """Train one vocabulary on both sides or one on each; the same for the same text, settings and seed."""
    _check(settings)
    sample = _reservoir(pairs, max_pairs, random.Random(seed))
    if not sample:
        raise ValueError("a tokenizer needs 1 or more sentences to train on, got 0")
    sides = [src for src, _ in sample], [tgt for _, tgt in sample]
    texts = [chain(*sides)] if settings.joint else sides
    # Each sentence once: the library takes minutes for a hundred equal long ones.
    tokenizer = Tokenizer(tuple(_train(list(dict.fromkeys(side)), settings, log) for side in texts))
    _check_symbols_kept(tokenizer, settings.symbols)
    return tokenizer


def default_coverage(texts: Sequence[str]) -> float:
    """Return the share of characters that become pieces, by the script: less than 1 for one with many characters."""
    with_many = sum(1 for text in texts if MANY_SIGNS.search(text))
    return COVERAGE[with_many > len(texts) / 100]  # a stray character in another script's text does not count


def _check(settings: TextSettings) -> None:
    choose(KINDS, settings.kind, "kind of pieces")
    if settings.vocab_size < 1:
        raise ValueError(f"text.vocab_size must be 1 or more, got {settings.vocab_size}")
    coverage = settings.character_coverage
    if coverage is not None and not 0.9 <= coverage <= 1:
        raise ValueError(f"text.character_coverage must lie in 0.9 … 1, got {coverage}")
    check_symbols(settings.symbols)
    if settings.kind == "characters" and (settings.symbols or settings.sampling):
        what = f"text.symbols {settings.symbols}" if settings.symbols else f"text.sampling {settings.sampling}"
        raise ValueError(
            f"text.kind 'characters' has one segmentation and no symbols, got {what}: leave it out, or use bpe"
        )


def check_symbols(symbols: Sequence[str]) -> None:
    """Raise ValueError for a symbol that could not occur in normalised text, or that is reserved."""
    for n, symbol in enumerate(symbols):
        if not symbol or normalise(symbol) != symbol or " " in symbol:
            raise ValueError(
                f"text.symbols must be written without spaces, as normalised text, got {symbol!r}; try {'<bt>'!r}"
            )
        if symbol in RESERVED or BYTE.fullmatch(symbol) or symbol in symbols[:n]:
            raise ValueError(f"text.symbols must be new, each named once, got {symbol!r}, which is taken; rename it")


def _check_symbols_kept(tokenizer: Tokenizer, symbols: Sequence[str]) -> None:
    """Raise ValueError if a symbol is split: unigram models favour a symbol, but less the longer it is."""
    for symbol in symbols:
        for side in ("src", "tgt"):
            if symbol not in tokenizer.pieces(tokenizer.encode(f"{symbol} {symbol}", side), side):
                raise ValueError(
                    f"text.symbols must not be made of words of the text, got {symbol!r}; choose a shorter one"
                )


def _reservoir(pairs: Iterable[tuple[str, str]], size: int, rng: random.Random) -> list[tuple[str, str]]:
    """Sample `size` of any number of pairs uniformly (Vitter 1985, algorithm R)."""
    sample: list[tuple[str, str]] = []
    for n, pair in enumerate(pairs):
        if n < size:
            sample.append(pair)
        elif (i := rng.randrange(n + 1)) < size:
            sample[i] = pair
    return sample


def _train(texts: Sequence[str], settings: TextSettings, log: Log) -> bytes:
    """Train with `text.vocab_size` pieces, or as many as the text has."""
    size = settings.vocab_size
    if settings.kind == "characters":
        return train_characters(texts, size, settings.byte_fallback)
    log(f"training a tokenizer of {size:,} pieces on {len(texts):,} sentences")
    while True:
        try:
            return _run_trainer(texts, settings, size)
        except RuntimeError as error:
            fewer = _max_pieces(str(error), size, settings)
            log(f"text.vocab_size becomes {fewer:,}: the text has too few pieces for {size:,}")
            size = fewer


def _max_pieces(message: str, size: int, settings: TextSettings) -> int:
    """Parse from the library's error message how many pieces the text has."""
    if (most := re.search(r"<= (\d+)", message)) and int(most[1]) < size:
        return int(most[1])
    if needed := re.search(r"required_chars\. \d+ vs (\d+)", message):
        raise ValueError(
            f"text.vocab_size must be {needed[1]} or more for the characters of this text, got {settings.vocab_size}; "
            "or lower text.character_coverage"
        )
    raise ValueError(f"no tokenizer can be trained on this text: {message}")


def _run_trainer(texts: Sequence[str], settings: TextSettings, size: int) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=model,
        model_type=KINDS[settings.kind],
        user_defined_symbols=list(settings.symbols),
        vocab_size=size,
        byte_fallback=settings.byte_fallback,
        character_coverage=settings.character_coverage or default_coverage(texts),
        normalization_rule_name="identity",
        max_sentencepiece_length=LONGEST_PIECE,
        seed_sentencepiece_size=max(CANDIDATES * size, 10_000),
        pad_id=Tokenizer.pad_id,
        unk_id=Tokenizer.unk_id,
        bos_id=Tokenizer.bos_id,
        eos_id=Tokenizer.eos_id,
        num_threads=N_THREADS,
        minloglevel=2,  # errors only; they are raised as well
    )
    return model.getvalue()
