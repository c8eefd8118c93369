"""What speaks for and against a pair, in numbers: how its words explain each other, lengths, ends, marks."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regard.clean.lexicon import LONGEST, Lexicon, Ragged, WordLinks, learn_lexicon, link_groups
from regard.data.normalise import dedup_key
from regard.data.tokenizer import Tokenizer
from regard.shapes import Array, Float, Int

UNEXPLAINED = 0.1  # chance that a word comes from none of the other side
AT_ONCE = 1 << 19  # links
EXPLAINED = 0.5  # log of how much likelier a word must be beside the other side than anywhere
DOUBT = 5.0  # occurrences after which a word is half believed to have shown its translations
NAME = re.compile(r"[A-Za-z][A-Za-z0-9+#.-]+|\d+")
FINAL = re.compile(r"[.。．…!！?？:：;；]['\"”’」』)）\]]*$")
OPENING, CLOSING = (re.compile(f"[{re.escape(signs)}]") for signs in ("([{（［｛「『《〈“", ")]}）］｝」』》〉”"))


@dataclass(frozen=True, eq=False)
class Ends:
    """How often each piece begins, ends and occurs at all on one side."""

    first: Float[Array, " pieces"]
    last: Float[Array, " pieces"]
    everywhere: Float[Array, " pieces"]

    @classmethod
    def count(cls, ids: Ragged, n: int) -> "Ends":
        first, last = (np.bincount([each[at] for each in ids], minlength=n).astype(float) for at in (0, -1))
        return cls(first, last, np.bincount(np.concatenate(ids), minlength=n).astype(float))

    def measure(self, ids: Ragged) -> Float[Array, "pairs 2"]:
        """Return the log-chances that the first piece begins a text, and that the last one ends it."""
        pieces = [np.array([each[at] for each in ids], np.int64) for at in (0, -1)]
        counted = zip((self.first, self.last), pieces, strict=True)
        return np.stack([np.log((often[own] + 0.2) / (self.everywhere[own] + 1)) for often, own in counted], 1)


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a part of a corpus teaches: its pieces, which of them go together, and where they stand."""

    tokenizer: Tokenizer
    lexicon: Lexicon
    ends: tuple[Ends, Ends]

    def measure(self, src: Sequence[str], tgt: Sequence[str]) -> Float[Array, "pairs features"]:
        """Return the features of pairs of texts that are not empty."""
        if not src:
            return np.zeros((0, N_FEATURES), np.float32)
        ids = encode(self.tokenizer, src, tgt)
        known = explain(first_occurrences(ids[0]), first_occurrences(ids[1]), self.lexicon)
        ends = [of_side.measure(side) for of_side, side in zip(self.ends, ids, strict=True)]
        sizes = np.log([[len(a) + 1, len(b) + 1] for a, b in zip(*ids, strict=True)])
        visible = np.array([surface(*pair) for pair in zip(src, tgt, strict=True)])
        return np.concatenate([known, visible, *ends, sizes], 1).astype(np.float32)


def learn_evidence(tokenizer: Tokenizer, src: Ragged, tgt: Ragged) -> Evidence:
    """Learn from the pieces of sentence pairs."""
    sizes = tokenizer.vocab_size("src"), tokenizer.vocab_size("tgt")
    lexicon = learn_lexicon(first_occurrences(src), first_occurrences(tgt), sizes)
    return Evidence(tokenizer, lexicon, (Ends.count(src, sizes[0]), Ends.count(tgt, sizes[1])))


def save_evidence(evidence: Evidence, folder: Path) -> None:
    """Write the arrays of a part, each to a file that processes share by mapping it."""
    folder.mkdir()
    for name, value in _arrays(evidence).items():
        np.save(folder / f"{name}.npy", value)


def load_evidence(tokenizer: Tokenizer, folder: Path) -> Evidence:
    def read(name: str) -> Float[Array, "..."]:
        return np.load(folder / f"{name}.npy", mmap_mode="r")

    links, totals, shares = ((read(f"{name}-0"), read(f"{name}-1")) for name in ("links", "totals", "shares"))
    ends = [Ends(*(read(f"{name}-{side}") for name in ("first", "last", "everywhere"))) for side in (0, 1)]
    return Evidence(tokenizer, Lexicon(links, totals, shares), (ends[0], ends[1]))


def _arrays(evidence: Evidence) -> dict[str, Float[Array, "..."]]:
    parts = [(evidence.lexicon, name) for name in ("links", "totals", "shares")]
    tables = {f"{name}-{side}": getattr(part, name)[side] for part, name in parts for side in (0, 1)}
    names = ("first", "last", "everywhere")
    return tables | {f"{name}-{side}": getattr(evidence.ends[side], name) for name in names for side in (0, 1)}


def encode(tokenizer: Tokenizer, src: Sequence[str], tgt: Sequence[str]) -> tuple[Ragged, Ragged]:
    """Return the pieces of both sides in lower case; a text without any is one unknown piece."""
    sides = tokenizer.encode_batch(map(str.lower, src), "src"), tokenizer.encode_batch(map(str.lower, tgt), "tgt")
    a, b = ([np.array(ids or [tokenizer.unk_id], np.int64) for ids in side] for side in sides)
    return a, b


def first_occurrences(ids: Ragged) -> Ragged:
    """Drop the pieces of each sentence that occurred in it before."""
    return [np.array(list(dict.fromkeys(each.tolist())), np.int64) for each in ids]


def explain(src: Ragged, tgt: Ragged, lexicon: Lexicon) -> Float[Array, "pairs features"]:
    """Return how well the pieces of each pair explain each other, in both directions."""
    src, tgt = [ids[:LONGEST] for ids in src], [ids[:LONGEST] for ids in tgt]
    return np.concatenate([_explain(src[some], tgt[some], lexicon) for some in link_groups(src, tgt, AT_ONCE)])


def _explain(src: Ragged, tgt: Ragged, lexicon: Lexicon) -> Float[Array, "pairs features"]:
    links = WordLinks.between(src, tgt)
    columns = []
    for given in (0, 1):
        said = 1 - given
        chances = lexicon.chances(links, given)
        explained, produced = (
            np.bincount(links.places[side], chances, minlength=len(links.pieces[side])) for side in (said, given)
        )
        shares = [lexicon.shares[side][links.pieces[side]] for side in (0, 1)]
        n_given = np.bincount(links.sentences[given], minlength=len(src))[links.sentences[said]]
        lift = np.log(UNEXPLAINED + (1 - UNEXPLAINED) * explained / n_given / shares[said])
        columns += _explained_features(lift, -np.log(shares[said]), links.sentences[said], len(src))
        totals = lexicon.totals[given][links.pieces[given]]
        weights = -np.log(shares[given]) * totals / (totals + DOUBT)
        columns += _produced_features(produced, weights, links.sentences[given], len(src))
    return np.stack(columns, 1)


def _explained_features(
    lift: Float[Array, " pieces"], rarity: Float[Array, " pieces"], sentence: Int[Array, " pieces"], n: int
) -> list[Float[Array, " pairs"]]:
    """Summarise how much likelier the other side makes each piece: in all, at both edges, at its best and worst."""
    count = np.bincount(sentence, minlength=n)
    place = np.arange(len(lift)) - (np.cumsum(count) - count)[sentence]
    third = np.maximum(count // 3, 1)
    tail, head = place >= (count - third)[sentence], place < third[sentence]
    mean = _sums(lift, sentence, n) / count
    weighted = _sums(lift * rarity, sentence, n) / (_sums(rarity, sentence, n) + 1)
    good = lift > EXPLAINED
    last, first = np.full(n, -1), count.copy()
    np.maximum.at(last, sentence[good], place[good])
    np.minimum.at(first, sentence[good], place[good])
    low, high = np.full(n, 10.0), np.full(n, -10.0)
    np.minimum.at(low, sentence, lift)
    np.maximum.at(high, sentence, lift)
    behind = count - 1 - last  # pieces after the last that is explained
    return [
        *(mean, mean * np.sqrt(count), weighted, low, high, np.log1p(count)),
        *(_sums(lift * tail, sentence, n) / third, _sums(lift * head, sentence, n) / third),
        *(_sums(good, sentence, n) / count, behind / count, np.log1p(behind), first / count),
    ]


def _produced_features(
    produced: Float[Array, " pieces"], weights: Float[Array, " pieces"], sentence: Int[Array, " pieces"], n: int
) -> list[Float[Array, " pairs"]]:
    """Summarise how much of the translations that each piece usually has are there."""
    count, total = np.bincount(sentence, minlength=n), _sums(weights, sentence, n)
    last = np.zeros(n)
    last[sentence] = produced  # that of the last piece stays
    mean = _sums(weights * produced, sentence, n) / (total + 1)
    log_mean = _sums(weights * np.log(produced + 0.01), sentence, n) / (total + 1)
    return [mean, log_mean, total / count, np.log1p(total), last]


def _sums(values: Array, sentence: Int[Array, " pieces"], n: int) -> Float[Array, " pairs"]:
    return np.bincount(sentence, values, minlength=n)


def surface(src: str, tgt: str) -> list[float]:
    """Return what is seen without reading: lengths, scripts, ends, brackets, names and numbers of both sides."""
    names = [set(NAME.findall(text)) for text in (src, tgt)]
    fewer, both = min(map(len, names)), len(names[0] & names[1])
    final = [FINAL.search(text) is not None for text in (src, tgt)]
    nesting = [len(OPENING.findall(text)) - len(CLOSING.findall(text)) for text in (src, tgt)]
    n_src, n_tgt = len(src), len(tgt)
    return [
        *(float(np.log1p(n_src)), float(np.log1p(n_tgt)), float(np.log((n_tgt + 1) / (n_src + 1)))),
        *(float(final[0]), float(final[1]), float(final[0] != final[1])),
        *(float(nesting[0]), float(nesting[1]), float(nesting[0] != nesting[1])),
        *(both / (fewer + 1), float(both), float(fewer > 0 and not both), float(len(names[0])), float(len(names[1]))),
        *(_latin_share(src), _latin_share(tgt), float(dedup_key(src) == dedup_key(tgt))),
    ]


def _latin_share(text: str) -> float:
    return 1.0 if text.isascii() else len(text.encode("ascii", "ignore")) / len(text)


N_FEATURES = 2 * (12 + 5) + 17 + 4 + 2
