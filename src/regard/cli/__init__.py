"""The command line: argv becomes one call."""

# Commands stand in the help in the order in which they are brought in here.
from regard.cli import train  # isort: skip
from regard.cli import translate  # isort: skip
from regard.cli import generate  # isort: skip
from regard.cli import trace  # isort: skip
from regard.cli import analyse  # isort: skip
from regard.cli import serve  # isort: skip
from regard.cli import models  # isort: skip
from regard.cli import studies  # isort: skip
from regard.cli import qa  # isort: skip
from regard.cli import study_images  # isort: skip
from regard.cli import study_video  # isort: skip
from regard.cli import study_dialogue  # isort: skip
from regard.cli import study_probe  # isort: skip
from regard.cli import study_subspaces  # isort: skip
from regard.cli import study_mean_split  # isort: skip
from regard.cli import study_heads  # isort: skip
from regard.cli import study_complexity  # isort: skip
from regard.cli import study_extrapolate  # isort: skip
from regard.cli import study_ablate  # isort: skip
from regard.cli.options import app, main

__all__ = [
    "analyse",
    "app",
    "generate",
    "main",
    "models",
    "qa",
    "serve",
    "studies",
    "study_ablate",
    "study_complexity",
    "study_dialogue",
    "study_extrapolate",
    "study_heads",
    "study_images",
    "study_mean_split",
    "study_probe",
    "study_subspaces",
    "study_video",
    "trace",
    "train",
    "translate",
]
