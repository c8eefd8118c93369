"""The command line: argv becomes one call."""

# Commands stand in the help in the order in which they are brought in here.
from regard.cli import train  # isort: skip
from regard.cli import translate  # isort: skip
from regard.cli import trace  # isort: skip
from regard.cli import heads  # isort: skip
from regard.cli import align  # isort: skip
from regard.cli import serve  # isort: skip
from regard.cli import models  # isort: skip
from regard.cli import studies  # isort: skip
from regard.cli.app import app, main

__all__ = ["align", "app", "heads", "main", "models", "serve", "studies", "trace", "train", "translate"]
