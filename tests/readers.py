"""Small readers of questions that several tests share, and the questions that they read."""

from dataclasses import replace
from functools import cache

import torch

from regard.config import ModelSettings, PartSettings, TextSettings
from regard.data.vocabulary import train_tokenizer
from regard.qa.data import Answer, Question, WindowSettings, make_facts, make_question
from regard.qa.model import QuestionReader, ReaderSettings, build_reader

CONTEXTS = {
    "zh": "西安是陕西省的省会，古称长安。公元前202年，刘邦在长安建立汉朝。它位于中国西北，人口约1300万。",
    "en": "Xi'an is the capital of Shaanxi. It was called Chang'an, and Liu Bang built his court there in 202 BC.",
}
ASKED = {
    "zh": [("西安的古称是什么？", "长安"), ("谁建立了汉朝？", "刘邦"), ("西安人口有多少？", "约1300万")],
    "en": [("What is Xi'an the capital of?", "Shaanxi"), ("Who built his court there?", "Liu Bang")],
}
MODEL = ModelSettings(
    n_encoder_layers=2,
    d_model=12,
    n_heads=2,
    d_ff=14,
    norm_place="before",
    dropout=0.0,
    position=PartSettings("rotary"),
)
WINDOWS = WindowSettings(size=37, stride=7, question=13, longest=5)


def questions(language: str = "en") -> list[Question]:
    """Gives questions on one short text."""
    context = CONTEXTS[language]
    return [
        make_question(f"{language}-{n}", text, context, [Answer(answer, context.index(answer))])
        for n, (text, answer) in enumerate(ASKED[language])
    ]


@cache
def tokenizer(language: str = "en"):
    """Learns pieces of facts or of the Chinese text."""
    asked = questions(language) + (make_facts(40, seed=5) if language == "en" else [])
    texts = [text for question in asked for text in (question.text, question.context)]
    return train_tokenizer([(text, text) for text in texts], TextSettings(vocab_size=500), lambda said: None, seed=0)


def small_reader(
    language: str = "en", model: ModelSettings = MODEL, windows: WindowSettings = WINDOWS
) -> QuestionReader:
    """Makes a reader in float64 whose every parameter is drawn, marks included."""
    torch.manual_seed(3)
    pieces = tokenizer(language)
    settings = ReaderSettings(replace(model), windows)
    made = build_reader(settings, pieces.vocab_size("src")).double().eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return QuestionReader(made, pieces, settings)
