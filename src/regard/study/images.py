"""Small images as patches: does a classifier need to know where each patch lies?"""

from dataclasses import replace

from regard.config import ModelSettings
from regard.study.trials import TaskSettings
from regard.train.examples import ExampleSettings

WAYS = ("grid_2d", "sinusoidal", "learned", "none")
FULL = TaskSettings(
    ModelSettings(
        n_encoder_layers=2, d_model=48, n_heads=4, d_ff=96, activation="gelu", norm_place="before", dropout=0.05
    ),
    ExampleSettings(epochs=90, batch=64, lr=3e-3, weight_decay=0.05),
    pool="mean",
    base=10.0,
)
QUICK = replace(FULL, learn=replace(FULL.learn, epochs=50))
SIDE = 2
SHOWN = (0, 80, 160, 240, 320)  # test images with their weights; the test is sorted by digit
