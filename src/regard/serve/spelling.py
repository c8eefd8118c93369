"""Pieces become text where the tokenizer that cut it is not at hand."""

import re
from collections.abc import Sequence

from regard.trace.words import BYTE, MARK, SPECIAL

BYTES = re.compile(r"(?:<0x[0-9A-F]{2}>)+")


def spelled(pieces: Sequence[str]) -> str:
    """Joins pieces: marks become spaces, bytes characters, and signs such as EOS nothing."""
    kept = "".join(piece for piece in pieces if BYTE.fullmatch(piece) or not SPECIAL.fullmatch(piece))
    return BYTES.sub(_characters, kept).replace(MARK, " ").strip()


def _characters(match: re.Match[str]) -> str:
    return bytes(int(byte, 16) for byte in BYTE.findall(match[0])).decode("utf-8", "replace")
