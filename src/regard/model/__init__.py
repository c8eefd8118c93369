"""Parameters, heads and the residual stream."""

from regard.model.multihead import MultiHeadAttention
from regard.model.recurrent import Recurrent
from regard.model.seq2seq import Seq2Seq, State
from regard.model.transformer import DecoderOnly, Transformer

__all__ = ["DecoderOnly", "MultiHeadAttention", "Recurrent", "Seq2Seq", "State", "Transformer"]
