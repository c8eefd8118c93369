"""A task whose examples are tokens with places: what is read, where it stands, what is to be said."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

# Draws other examples of the same classes from some: for training only.
Vary = Callable[[Shaped[Tensor, "B T *P"], torch.Generator], Shaped[Tensor, "B T *P"]]


@dataclass(frozen=True, eq=False)
class Examples:
    """Numbered examples; `places` has a row for each of them, or one where all stand alike."""

    tokens: Shaped[Tensor, "N T *P"]  # patches as numbers, or words as ids
    places: Int[Tensor, "M T A"]  # one column for each of the task's axes
    lengths: Int[Tensor, " N"]  # tokens from here on are padding
    labels: Int[Tensor, " N"]

    def __len__(self) -> int:
        return len(self.labels)

    def some(self, numbers: Int[Tensor, " B"]) -> "Examples":
        """Takes some examples, in any order."""
        places = self.places if len(self.places) == 1 else self.places[numbers]
        return Examples(self.tokens[numbers], places, self.lengths[numbers], self.labels[numbers])

    def to(self, device: torch.device) -> "Examples":
        """Brings them to a device."""
        return Examples(*(part.to(device) for part in (self.tokens, self.places, self.lengths, self.labels)))

    def shuffled(self, seed: int) -> "Examples":
        """Shuffles the real tokens of each example, while the places stay where they were."""
        N, T = self.tokens.shape[:2]
        draws = torch.rand(N, T, generator=torch.Generator().manual_seed(seed))
        behind = torch.arange(T) >= self.lengths.cpu()[:, None]  # padding stays at the end
        order = (draws + behind).argsort(dim=1).to(self.tokens.device)
        return replace(self, tokens=self.tokens[torch.arange(N, device=order.device)[:, None], order])


@dataclass(frozen=True, eq=False)
class Task:
    """One question with examples to learn from, to choose by, and to be judged by."""

    name: str
    classes: tuple[str, ...]
    axes: tuple[str, ...]  # what each column of the places is
    size: int  # numbers in a patch, or words in the vocabulary
    train: Examples
    valid: Examples
    test: Examples
    vary: Vary | None = None
