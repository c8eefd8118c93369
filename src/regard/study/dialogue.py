"""Dialogues as words: do turn and speaker tell who said what?"""

from dataclasses import replace

from regard.config import ModelSettings
from regard.study.trials import TaskSettings
from regard.train.examples import ExampleSettings

WAYS = ("turns", "turns:index,nothing,speaker", "turns:index,turn,nothing", "sinusoidal", "none")
FULL = TaskSettings(
    ModelSettings(
        n_encoder_layers=2, d_model=32, n_heads=2, d_ff=64, activation="gelu", norm_place="before", dropout=0.0
    ),
    ExampleSettings(epochs=7, batch=32, lr=4e-3),
    pool="mean",
)
QUICK = replace(FULL, learn=replace(FULL.learn, epochs=5))
SHOWN = (0, 500)  # test dialogues with their weights
