"""The state of beam search on a device: the hypotheses of all slots, and the history of their decisions."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.padding import BOS, EOS
from regard.search.traceback import INTEGERS, REALS, History


class BeamHistory:
    """What was decided at each length: which hypothesis goes on with which token, and which ended there."""

    def __init__(self, B: int, T: int, N: int, device: torch.device):
        self.integers = torch.zeros(len(INTEGERS), B, T, N, dtype=torch.int32, device=device)
        self.reals = torch.zeros(len(REALS), B, T, N, dtype=torch.float64, device=device)
        self.tokens, self.parents, self.end_parents = self.integers.unbind()
        self.log_probs, self.end_log_probs, self.totals, self.end_totals = self.reals.unbind()  # −∞: nothing ended

    @property
    def columns(self) -> tuple[Tensor, ...]:
        """Return what the kernels take, in their order."""
        going_on = (self.tokens, self.parents, self.log_probs, self.totals)
        return *going_on, self.end_parents, self.end_log_probs, self.end_totals

    def write(self, lengths: Int[Tensor, " B"], **columns: Tensor) -> None:
        """Write one column of each of these, at each sentence's length."""
        B, N = columns["tokens"].shape
        at = lengths.long()[:, None, None].expand(B, 1, N)
        for name, column in columns.items():
            stored: Tensor = getattr(self, name)
            stored.scatter_(1, at, column[:, None].to(stored.dtype))

    def take(self, slots: Int[Tensor, " M"], T: int) -> History:
        """Return what was written in some slots, up to a length, in two copies."""
        integers, reals = (stored[:, slots, :T].cpu().numpy() for stored in (self.integers, self.reals))
        return dict(zip(INTEGERS + REALS, [*integers, *reals], strict=True))


class BeamState:
    """The hypotheses of all slots: what `beam_search` keeps in NumPy, for sentences of different lengths.

    A slot is final by the stop rule of `BestFinished.is_final`; it stays as it is until another sentence begins there.
    """

    def __init__(self, B: int, N: int, T: int, n_best: int, length_penalty: float, device: torch.device):
        self.history = BeamHistory(B, T, N, device)
        self.length_penalty = length_penalty
        self.tokens = torch.full((B, N), BOS, device=device)
        self.totals = torch.zeros(B, N, dtype=torch.float64, device=device)
        self.best_scores = torch.zeros(B, n_best, dtype=torch.float64, device=device)  # of finished hypotheses
        self.n_finished = torch.zeros(B, dtype=torch.int64, device=device)
        self.limits = torch.ones(B, dtype=torch.int64, device=device)
        self.final = torch.ones(B, dtype=torch.bool, device=device)

    @property
    def columns(self) -> tuple[Tensor, ...]:
        """Return what the kernels take, in their order."""
        return self.tokens, self.totals, self.best_scores, self.n_finished, self.limits, self.final

    def begin(self, slots: Int[Tensor, " M"], limits: Int[Tensor, " M"]) -> None:
        """Let sentences begin in some slots: with one hypothesis, since all begin alike."""
        self.tokens[slots] = BOS
        self.totals[slots, 0] = 0.0
        self.totals[slots, 1:] = -torch.inf
        self.best_scores[slots] = -torch.inf
        self.n_finished[slots] = 0
        self.limits[slots] = limits
        self.final[slots] = False

    def advance(
        self, log_probs: Float[Tensor, "R k"], tokens: Int[Tensor, "R k"], lengths: Int[Tensor, " B"]
    ) -> tuple[Int[Tensor, "B N"], Int[Tensor, " B"]]:
        """Go on with the N best continuations; return the parent of each, and 1 for each sentence that went on."""
        B, N = self.totals.shape
        k = log_probs.shape[1]
        sums = (self.totals[..., None] + log_probs.view(B, N, k)).flatten(1)
        best = sums.sort(dim=1, descending=True, stable=True)
        totals, at = best.values[:, : 2 * N], best.indices[:, : 2 * N]
        tokens, log_probs = (x.view(B, N * k).gather(1, at) for x in (tokens, log_probs))
        parents, is_end = at // k, tokens == EOS
        end_totals = totals[:, :N].masked_fill(~is_end[:, :N], -torch.inf)
        self._count_ends(end_totals / (lengths[:, None] + 1.0) ** self.length_penalty, end_totals > -torch.inf)
        on = is_end.byte().sort(dim=1, stable=True).indices[:, :N]  # N of the 2N are not ends
        going = {"tokens": tokens, "log_probs": log_probs, "parents": parents, "totals": totals}
        going = {name: x.gather(1, on) for name, x in going.items()}
        ending = {"end_totals": end_totals, "end_log_probs": log_probs[:, :N], "end_parents": parents[:, :N]}
        self.history.write(lengths, **going, **ending)
        self.tokens.copy_(going["tokens"])
        self.totals.copy_(going["totals"])
        writes = (~self.final).to(lengths.dtype)
        self.final |= self._is_final(lengths + 1, N)
        return going["parents"], writes

    def _count_ends(self, scores: Float[Tensor, "B N"], ended: Bool[Tensor, "B N"]) -> None:
        M = self.best_scores.shape[1]
        scores = torch.cat([self.best_scores, scores], dim=1)
        self.best_scores.copy_(scores.sort(dim=1, descending=True).values[:, :M])
        self.n_finished += ended.sum(1)

    def _is_final(self, lengths: Int[Tensor, " B"], N: int) -> Bool[Tensor, " B"]:
        reach = self.limits.double() if self.length_penalty > 0 else lengths + 1.0
        bound = self.totals.amax(1) / reach**self.length_penalty
        return (self.n_finished >= N) | (bound <= self.best_scores[:, -1]) | (self.limits <= lengths)
