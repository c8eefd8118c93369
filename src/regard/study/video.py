"""Short clips as patches: which places tell the direction of a movement?"""

from dataclasses import replace

from regard.config import ModelSettings
from regard.study.trials import TaskSettings
from regard.train.examples import ExampleSettings

WAYS = ("grid_3d", "sinusoidal", "learned", "grid_2d", "none")
FULL = TaskSettings(
    ModelSettings(
        n_encoder_layers=2, d_model=32, n_heads=2, d_ff=64, activation="gelu", norm_place="before", dropout=0.0
    ),
    ExampleSettings(epochs=30, batch=32, lr=2e-3),
    pool="mean",
    base=4.0,
)
QUICK = replace(FULL, learn=replace(FULL.learn, epochs=18))
SHOWN = (0, 9)  # test clips with their weights
