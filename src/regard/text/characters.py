"""Characters as pieces: a vocabulary that keeps a text as it was written, white space and line ends included."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")
UNKNOWN = 1
SHOWN = {" ": "▁", "\n": "⏎", "\t": "⇥"}  # how a piece is named that nobody would see
MARK = b'{"characters"'  # what a model file of this kind begins with; SentencePiece's begin with a line feed


class Characters:
    """Ids of single characters, and of the bytes in which all others are spelled where the vocabulary has bytes.

    The first four ids are padding, unknown, beginning and end. It answers as SentencePiece's processors do.
    """

    def __init__(self, model: bytes):
        found = _read(model)
        self.characters: list[str] = found["characters"]
        self.first_byte = len(SPECIAL)
        self.first = self.first_byte + (256 if found["bytes"] else 0)
        self.ids = {character: self.first + n for n, character in enumerate(self.characters)}
        self.spells = bool(found["bytes"])

    def vocab_size(self) -> int:
        """Gives the number of ids."""
        return self.first + len(self.characters)

    def encode(self, text: str | Sequence[str]) -> Any:
        """Gives the ids of a text, or of each of several."""
        if not isinstance(text, str):
            return [self.encode(each) for each in text]
        ids, found = [], self.ids.get
        for character in text:
            known = found(character)
            ids += self._spelled(character) if known is None else (known,)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Puts characters together; special ids vanish, but an unknown character is shown as ⁇."""
        return b"".join(self._bytes(i) for i in ids).decode("utf-8", "replace")

    def id_to_piece(self, ids: Sequence[int]) -> list[str]:
        """Names each id; ▁ is a space and ⏎ the end of a line."""
        return [self._named(i) for i in ids]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Tells where the character of each id stands; all bytes of a character stand where it does."""
        return [(n, n + 1) for n, character in enumerate(text) for _ in self.encode(character)]

    def _spelled(self, character: str) -> Sequence[int]:
        if not self.spells:
            return (UNKNOWN,)
        return [self.first_byte + byte for byte in character.encode("utf-8", "surrogatepass")]

    def _bytes(self, i: int) -> bytes:
        if i >= self.first:
            return self.characters[i - self.first].encode("utf-8")
        if i >= self.first_byte:
            return bytes([i - self.first_byte])
        return "⁇".encode() if i == UNKNOWN else b""

    def _named(self, i: int) -> str:
        if i < self.first:
            return SPECIAL[i] if i < self.first_byte else f"<0x{i - self.first_byte:02X}>"
        character = self.characters[i - self.first]
        return SHOWN.get(character, character)


def learn_characters(texts: Iterable[str], most: int, spell: bool) -> bytes:
    """Gives the model of the commonest characters, `most` ids in all; bytes spell the others where that is wanted."""
    counts = Counter(_whole(texts))
    room = most - len(SPECIAL) - 256 * spell
    if room < 1:
        raise ValueError(
            f"text.vocab_size must leave room for characters besides {most - room} ids of its own, got {most}; raise it"
        )
    # By number, then by sign: the same whatever the order of the text.
    commonest = sorted(counts, key=lambda character: (-counts[character], character))[:room]
    return json.dumps({"characters": sorted(commonest), "bytes": spell}).encode()


def is_characters(model: bytes) -> bool:
    """Tells whether a model file is of this kind."""
    return model.startswith(MARK)


def _whole(texts: Iterable[str]) -> Iterator[str]:
    """Gives all characters but halves of surrogate pairs, which stand for nothing alone."""
    return (character for text in texts for character in text if not "\ud800" <= character <= "\udfff")


def _read(model: bytes) -> dict[str, Any]:
    try:
        found = json.loads(model)
        if not all(isinstance(each, str) and len(each) == 1 for each in found["characters"]):
            raise ValueError("a list of single characters is expected")
        return {"characters": list(found["characters"]), "bytes": bool(found["bytes"])}
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"a tokenizer of characters must be a whole JSON file, got {error!r}") from error
