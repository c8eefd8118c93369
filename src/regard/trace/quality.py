"""How good a model is on some pairs: its loss, and its BLEU."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from regard.batch import Batch
from regard.decode.translator import Translator
from regard.model import Seq2Seq
from regard.model.swift import swift
from regard.score.bleu import score
from regard.trace.costs import token_costs


@dataclass(frozen=True)
class Quality:
    """Mean −log p of a target token, and BLEU of greedy translations where they were asked for."""

    loss: float
    bleu: float | None


def judge(
    model: Seq2Seq, batches: Sequence[Batch], translator: Translator, pairs: Sequence[tuple[str, str]]
) -> Quality:
    """Judges a plain model by the batches, and by translations of the pairs with the translator's words, if any."""
    total = sum(float(token_costs(model, batch).double().sum()) for batch in batches)
    loss = total / sum(batch.tgt.n_tokens for batch in batches)
    return Quality(loss, _bleu(model, translator, pairs) if pairs else None)


def _bleu(model: Seq2Seq, translator: Translator, pairs: Sequence[tuple[str, str]]) -> float:
    """Translates on the fast path: the model as it is now is packed for it."""
    greedy = replace(translator.settings, method="greedy", beam=1, n_best=1)
    languages = translator.src_lang, translator.tgt_lang
    quick = Translator(swift(model), translator.tokenizer, greedy, *languages, translator.max_len)
    outputs = [found.text for found in quick.translate([src for src, _ in pairs])]
    return score(outputs, [tgt for _, tgt in pairs], translator.tgt_lang).bleu
