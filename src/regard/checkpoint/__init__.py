"""A model with its settings and tokenizer, to disk and back; nothing is pickled, nothing half-written."""

from regard.checkpoint.folder import (
    ALIGNMENT,
    CARD,
    Checkpoint,
    copy_model,
    describe,
    load_model,
    model_folder,
    save_model,
)
from regard.checkpoint.record import CONFIG, SCORES, read_json, read_settings, settings_table, write_json
from regard.checkpoint.tensors import fill, gathered, put, read_tensors, unique_tensors, write_tensors
from regard.checkpoint.weights import WEIGHTS, Form

__all__ = [
    "ALIGNMENT",
    "CARD",
    "CONFIG",
    "SCORES",
    "WEIGHTS",
    "Checkpoint",
    "Form",
    "copy_model",
    "describe",
    "fill",
    "gathered",
    "load_model",
    "model_folder",
    "put",
    "read_json",
    "read_settings",
    "read_tensors",
    "save_model",
    "settings_table",
    "unique_tensors",
    "write_json",
    "write_tensors",
]
