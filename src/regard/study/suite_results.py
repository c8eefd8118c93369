"""What suites left in a folder: one file for each suite and device."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.study.suites import SUITES


@dataclass(frozen=True)
class Result:
    """One file; a suite's numbers have a form of their own, and older files may lack some."""

    name: str
    device: str
    record: dict[str, Any]

    @property
    def file(self) -> str:
        """Names the file."""
        return f"{self.name}-{self.device}.json"


def read_results(folder: Path) -> tuple[list[Result], list[str]]:
    """Reads what there is, in the order of the suites; gives also which files could not be read, and why."""
    results, broken = [], []
    for suite in SUITES:
        path = folder / suite.result
        if not path.is_file():
            continue
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(record, dict):
                raise ValueError(f"one JSON object expected, got {type(record).__name__}")
            results.append(Result(suite.name, suite.device, record))
        except ValueError as error:
            broken.append(f"{path.name}: {error}")
    return results, broken
