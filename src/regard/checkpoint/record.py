"""What a model was made with and how good it is, as JSON files."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from regard.config import Settings, settings

CONFIG, SCORES = "config.json", "scores.json"


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object; a missing, truncated or foreign file is named."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ValueError(f"{path}: this file is missing from the model folder") from error
    except (ValueError, OSError) as error:
        raise ValueError(f"{path}: this is no complete JSON file ({error})") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path}: this must be a JSON object, got {type(value).__name__}")
    return value


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Writes a JSON object for people and programs."""
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_settings(path: Path) -> Settings:
    """Reads the settings that a run or a model was made with."""
    saved = read_json(path).get("settings")
    if not isinstance(saved, dict):
        raise ValueError(f"{path}: this must hold a table of settings, got {type(saved).__name__}")
    try:
        return settings(Settings, saved)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def settings_table(made: Settings) -> dict[str, Any]:
    """Gives settings as tables in the form in which they are read."""

    def flat(value: Any) -> Any:
        if isinstance(value, dict) and value.keys() == {"name", "options"}:
            return {"name": value["name"], **value["options"]}
        return (
            {key: "none" if item is None else flat(item) for key, item in value.items()}
            if isinstance(value, dict)
            else value
        )

    return flat(asdict(made))
