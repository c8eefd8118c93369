"""What is to be made of a text without translations."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from regard.config import DataSettings, TextSettings
from regard.text.characters import learn_characters
from regard.text.tokenizer import Tokenizer
from regard.text.vocabulary import Say, train_tokenizer


@dataclass(frozen=True)
class TextJob:
    """What is to be prepared, and who is told of it."""

    data: DataSettings
    text: TextSettings
    seed: int
    say: Say

    def learned(self, texts: Iterable[str]) -> Tokenizer:
        """Learns the pieces of texts: one vocabulary, as there is one side."""
        if self.text.kind == "characters":  # which are counted as the text goes by
            return Tokenizer((learn_characters(texts, self.text.vocab_size, self.text.byte_fallback),))
        settings = replace(self.text, joint=True)
        return train_tokenizer(((text, text) for text in texts), settings, self.say, self.seed)
