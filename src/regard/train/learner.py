"""A model together with its loss: what several processes learn together."""

from jaxtyping import Float
from torch import Tensor, nn

from regard.batch import Batch, doubled
from regard.model import Seq2Seq
from regard.train.fused_loss import LinearAgreeing, linear_cross_entropy
from regard.train.r_drop import agreeing_cross_entropy


class Learner(nn.Module):
    """Reads a batch and says how wrong the model is: the sum of the smoothed loss, and of −log p alone."""

    def __init__(self, model: Seq2Seq, smoothing: float, r_drop: float = 0.0):
        super().__init__()
        self.model = model
        self.smoothing = smoothing
        self.r_drop = r_drop

    def forward(self, batch: Batch) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        if self.r_drop > 0.0:
            return self._twice(doubled(batch))
        x, tgt = self.model.features(batch), batch.tgt
        return linear_cross_entropy(x, self.model.output.table.weight, tgt.say, tgt.real, self.smoothing)

    def _twice(self, batch: Batch) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        x, tgt = self.model.features(batch), batch.tgt
        if not x.is_cuda:
            return agreeing_cross_entropy(self.model.output(x), tgt.say, tgt.real, self.smoothing, self.r_drop)
        say, real = (half.chunk(2)[0].flatten() for half in (tgt.say, tgt.real))
        table = self.model.output.table.weight
        return LinearAgreeing.apply(x.flatten(0, 1), table, say, real, self.smoothing, self.r_drop)  # pyright: ignore
