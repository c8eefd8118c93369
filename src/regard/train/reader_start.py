"""How a reader begins: from nothing, with a translator's encoder, or with words learned from text alone."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from regard.checkpoint import load_model
from regard.checkpoint.reading import QuestionReader, ReaderSettings, build_reader
from regard.checkpoint.tensors import fill, unique_tensors
from regard.config import ModelSettings
from regard.decode.sentences import SENTENCE_END, cut
from regard.model import Transformer
from regard.text.passages import ASKED, READ
from regard.text.questions import Question
from regard.text.vocabulary import train_tokenizer
from regard.train.reading import ReadingSettings
from regard.zoo.find import find_model

NEW = ("scratch", "pretrained")  # starts that learn their own pieces


def start_reader(
    start: str, made: ReadingSettings, questions: Sequence[Question], texts: Sequence[str], say: Callable[[str], None]
) -> QuestionReader:
    """Makes a reader that is about to learn: a new one, or one with the encoder and the words of a model."""
    torch.manual_seed(made.train.seed)
    return new_reader(made, questions, texts, say) if start in NEW else reader_of_translator(start, made)


def new_reader(
    made: ReadingSettings, questions: Sequence[Question], texts: Sequence[str], say: Callable[[str], None]
) -> QuestionReader:
    """Learns pieces from the questions, their contexts and further texts, and draws a model of the given sizes."""
    contexts = dict.fromkeys(question.context for question in questions)
    sentences = [sentence.strip() for context in contexts for sentence in cut(context, SENTENCE_END)]
    spoken = [text for text in (*sentences, *(question.text for question in questions), *texts) if text]
    pairs = [(text, text) for text in spoken]
    tokenizer = train_tokenizer(pairs, replace(made.text, joint=True), say, made.train.seed)
    parts = ReaderSettings(made.model, made.windows)
    return QuestionReader(build_reader(parts, tokenizer.vocab_size("src")), tokenizer, parts)


def reader_of_translator(name: str, made: ReadingSettings) -> QuestionReader:
    """Takes over a translator's source table, encoder and tokenizer; of its settings only dropout may differ."""
    folder = find_model(name)
    checkpoint = load_model(folder)
    own = checkpoint.settings.model
    if type(checkpoint.model) is not Transformer:
        raise ValueError(f"--start {name}: a reader takes the encoder of a Transformer, got the family {own.family!r}")
    said = replace(made.model, dropout=ModelSettings().dropout)
    if said != ModelSettings():
        raise ValueError(f"--start {name}: a reader keeps the sizes of its model, got {said}: set model.dropout alone")
    parts = ReaderSettings(replace(own, dropout=made.model.dropout), made.windows)
    reader = build_reader(parts, checkpoint.tokenizer.vocab_size("src"))
    fill(reader.words, unique_tensors(checkpoint.model.src), folder)
    fill(reader.encoder, unique_tensors(checkpoint.model.encoder), folder)
    with torch.no_grad():
        reader.marks.weight[[ASKED, READ]] = 0.0  # so that the encoder first gives what it gave there
    return QuestionReader(reader, checkpoint.tokenizer, parts)
