"""Mixing values by weights: the table of attentions."""

from regard.attention.contract import Attention
from regard.attention.scores import Additive, Bilinear, Dot, Gaussian, ScaledDot

__all__ = ["ATTENTION", "Additive", "Attention", "Bilinear", "Dot", "Gaussian", "ScaledDot"]

ATTENTION: dict[str, type[Attention]] = {
    "dot": Dot,
    "scaled_dot": ScaledDot,
    "additive": Additive,
    "bilinear": Bilinear,
    "gaussian": Gaussian,
}
