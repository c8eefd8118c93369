"""Device-side beam search state and traceback."""

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.config import DecodeSettings
from regard.model.seq2seq import Choices
from regard.padding import BOS, EOS
from regard.search.hypothesis import Hypothesis, make_hypothesis, ranked


class Record:
    """What was decided at each age: who goes on with which token, and who ended there."""

    WHOLE, REAL = ("tokens", "parents", "end_parents"), ("gains", "end_gains", "totals", "end_totals")

    def __init__(self, B: int, T: int, N: int, device: torch.device):
        self.whole = torch.zeros(len(self.WHOLE), B, T, N, dtype=torch.int32, device=device)
        self.real = torch.zeros(len(self.REAL), B, T, N, dtype=torch.float64, device=device)
        self.tokens, self.parents, self.end_parents = self.whole.unbind()
        self.gains, self.end_gains, self.totals, self.end_totals = self.real.unbind()  # −∞ where nothing ended

    def write(self, ages: Int[Tensor, " B"], **columns: Tensor) -> None:
        """Writes one column of each of these, at each sentence's age."""
        B, N = columns["tokens"].shape
        at = ages.long()[:, None, None].expand(B, 1, N)
        for name, column in columns.items():
            kept: Tensor = getattr(self, name)
            kept.scatter_(1, at, column[:, None].to(kept.dtype))

    def take(self, places: Int[Tensor, " M"], T: int) -> dict[str, np.ndarray]:
        """Gives what was written at some places, up to an age, in two copies."""
        whole, real = (kept[:, places, :T].cpu().numpy() for kept in (self.whole, self.real))
        return dict(zip(self.WHOLE + self.REAL, [*whole, *real], strict=True))


class Beams:
    """The hypotheses of all slots: what `beam.search` keeps with NumPy, for sentences of different ages.

    A slot is over when its sentence has `beam` ends, can find no better one, or has no room left; it stays as it is
    until another sentence begins there.
    """

    def __init__(self, B: int, N: int, T: int, n_best: int, length_penalty: float, device: torch.device):
        self.record = Record(B, T, N, device)
        self.length_penalty = length_penalty
        self.tokens = torch.full((B, N), BOS, device=device)
        self.totals = torch.zeros(B, N, dtype=torch.float64, device=device)
        self.standing = torch.zeros(B, n_best, dtype=torch.float64, device=device)  # the best scores of ends
        self.finished = torch.zeros(B, dtype=torch.int64, device=device)
        self.limits = torch.ones(B, dtype=torch.int64, device=device)
        self.over = torch.ones(B, dtype=torch.bool, device=device)

    def begin(self, places: Int[Tensor, " M"], limits: Int[Tensor, " M"]) -> None:
        """Lets sentences begin in some slots: with one hypothesis, since all begin alike."""
        self.tokens[places] = BOS
        self.totals[places, 0] = 0.0
        self.totals[places, 1:] = -torch.inf
        self.standing[places] = -torch.inf
        self.finished[places] = 0
        self.limits[places] = limits
        self.over[places] = False

    def advance(self, said: Choices, ages: Int[Tensor, " B"]) -> tuple[Int[Tensor, "B N"], Int[Tensor, " B"]]:
        """Goes on with the N best continuations; gives whom each continues, and 1 for each sentence that went on."""
        B, N = self.totals.shape
        k = said.gains.shape[1]
        sums = (self.totals[..., None] + said.gains.view(B, N, k)).flatten(1)
        best = sums.sort(dim=1, descending=True, stable=True)
        totals, at = best.values[:, : 2 * N], best.indices[:, : 2 * N]
        tokens, gains = (x.view(B, N * k).gather(1, at) for x in (said.tokens, said.gains))
        parents, is_end = at // k, tokens == EOS
        lengths = ages[:, None] + 1.0
        end_totals = totals[:, :N].masked_fill(~is_end[:, :N], -torch.inf)
        ended = end_totals > -torch.inf
        self._note_ends(end_totals / lengths**self.length_penalty, ended)
        on = is_end.byte().sort(dim=1, stable=True).indices[:, :N]  # N of the 2N are no ends
        going = {"tokens": tokens, "gains": gains, "parents": parents, "totals": totals}
        going = {name: x.gather(1, on) for name, x in going.items()}
        self.record.write(ages, **going, end_totals=end_totals, end_gains=gains[:, :N], end_parents=parents[:, :N])
        self.tokens.copy_(going["tokens"])
        self.totals.copy_(going["totals"])
        writes = (~self.over).to(ages.dtype)
        self.over |= self._decided(ages + 1, N)
        return going["parents"], writes

    def _note_ends(self, scores: Float[Tensor, "B N"], ended: Bool[Tensor, "B N"]) -> None:
        M = self.standing.shape[1]
        self.standing.copy_(torch.cat([self.standing, scores], dim=1).sort(dim=1, descending=True).values[:, :M])
        self.finished += ended.sum(1)

    def _decided(self, lengths: Int[Tensor, " B"], N: int) -> Bool[Tensor, " B"]:
        """Tells which sentences are over, by the same rule as `Standing.decided`."""
        reach = self.limits.double() if self.length_penalty > 0 else lengths + 1.0
        bound = self.totals.amax(1) / reach**self.length_penalty
        return (self.finished >= N) | (bound <= self.standing[:, -1]) | (self.limits <= lengths)


Written = dict[str, np.ndarray]  # the columns of a `Record`, (M, T, N) each
Found = Iterator[tuple[int, Hypothesis]]


def best_hypotheses(
    written: Written, lengths: Int[np.ndarray, " M"], settings: DecodeSettings
) -> list[list[Hypothesis]]:
    """Gives the `n_best` hypotheses of each sentence, unfinished ones where too few ended."""
    M = len(lengths)
    found: list[list[Hypothesis]] = [[] for _ in range(M)]
    for sentence, hypothesis in _ended(written, lengths, settings):
        found[sentence].append(hypothesis)
    few = np.array([i for i in range(M) if len(found[i]) < settings.n_best], np.int64)
    for sentence, hypothesis in _unfinished(written, few, lengths[few], settings):
        found[sentence].append(hypothesis)
    return [ranked(hypotheses, settings.n_best) for hypotheses in found]


def made_hypotheses(
    tokens: Int[np.ndarray, "M n_best T1"], gains: Float[np.ndarray, "M n_best T"], settings: DecodeSettings
) -> list[list[Hypothesis]]:
    """Makes the hypotheses that `kernel.follow_back` found."""
    counts = tokens[:, :, 0]
    longest = int(counts.max(initial=0))
    columns = (counts, tokens[:, :, 1 : 1 + longest], gains[:, :, :longest])
    return [
        [
            make_hypothesis(said[:n], gained[:n], settings.length_penalty)
            for n, said, gained in zip(*each, strict=True)
            if n
        ]
        for each in zip(*(x.tolist() for x in columns), strict=True)
    ]


def _ended(written: Written, lengths: Int[np.ndarray, " M"], settings: DecodeSettings) -> Found:
    """Gives the best hypotheses that ended, each with the number of its sentence."""
    M, T, N = written["tokens"].shape
    ages = np.arange(T)
    within = (ages < lengths[:, None])[:, :, None]
    scores = np.where(within, written["end_totals"], -np.inf) / (ages[:, None] + 1.0) ** settings.length_penalty
    chosen = np.argsort(-scores.reshape(M, T * N), axis=1, kind="stable")[:, : settings.n_best]
    sentences, places = np.nonzero(np.take_along_axis(scores.reshape(M, T * N), chosen, 1) > -np.inf)
    age, rank = np.divmod(chosen[sentences, places], N)
    at = (sentences, age, rank)
    ids, gains = followed_back(written, sentences, age, written["end_parents"][at])
    columns = (sentences, age, ids, gains, written["end_gains"][at])
    for sentence, n, tokens, gained, last in zip(*(x.tolist() for x in columns), strict=True):
        yield sentence, make_hypothesis([*tokens[:n], EOS], [*gained[:n], last], settings.length_penalty)


def _unfinished(
    written: Written, sentences: Int[np.ndarray, " M"], lengths: Int[np.ndarray, " M"], settings: DecodeSettings
) -> Found:
    """Gives the best hypotheses of some sentences that were being written when each was over."""
    totals = written["totals"][sentences, lengths - 1]  # largest first, since that is how a search goes on
    which, rank = np.nonzero(totals[:, : settings.n_best] > -np.inf)
    ids, gains = followed_back(written, sentences[which], lengths[which], rank)
    columns = (sentences[which], lengths[which], ids, gains)
    for sentence, n, tokens, gained in zip(*(x.tolist() for x in columns), strict=True):
        yield sentence, make_hypothesis(tokens[:n], gained[:n], settings.length_penalty)


def followed_back(
    written: Written, sentences: Int[np.ndarray, " H"], lengths: Int[np.ndarray, " H"], rows: Int[np.ndarray, " H"]
) -> tuple[Int[np.ndarray, "H T"], Float[np.ndarray, "H T"]]:
    """Gives the tokens of hypotheses and what each gained, from where each stood at its length."""
    T = int(lengths.max(initial=0))
    _, ages, N = written["tokens"].shape
    ids, gains = np.zeros((T, len(rows)), np.int64), np.zeros((T, len(rows)))
    tokens, gained, parents = (written[name].reshape(-1) for name in ("tokens", "gains", "parents"))
    first, rows = sentences * (ages * N), rows.astype(np.int64)
    for age in range(T - 1, -1, -1):
        at = first + age * N + rows
        ids[age], gains[age] = tokens.take(at), gained.take(at)
        rows = np.where(age < lengths, parents.take(at), rows)  # one that is shorter stays where it stood
    return ids.T, gains.T
