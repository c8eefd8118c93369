"""A model together with its loss: what several processes learn together."""

from jaxtyping import Float
from torch import Tensor, nn

from regard.batch import Batch
from regard.model import Seq2Seq
from regard.train.fused_loss import linear_cross_entropy


class Learner(nn.Module):
    """Reads a batch and says how wrong the model is: the sum of the smoothed loss, and of −log p alone."""

    def __init__(self, model: Seq2Seq, smoothing: float):
        super().__init__()
        self.model = model
        self.smoothing = smoothing

    def forward(self, batch: Batch) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        x, tgt = self.model.features(batch), batch.tgt
        return linear_cross_entropy(x, self.model.output.table.weight, tgt.say, tgt.real, self.smoothing)
