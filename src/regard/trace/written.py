"""Texts are written as ever, by a model whose answers are written down, and then looked into."""

from dataclasses import replace
from functools import partial

from regard.config import DecodeSettings
from regard.decode.translation import make_translation
from regard.decode.writer import Writer
from regard.trace.run import Traced, look_at, make_tree
from regard.trace.trace import Trace
from regard.trace.tree import Tree
from regard.trace.watched import Watched


def traced_text(writer: Writer, prompt: str, settings: DecodeSettings | None = None) -> Traced:
    """Writes after a prompt just as `writer.write` does, and looks into the best that was found."""
    chosen = settings or writer.settings
    watched = Watched(writer.model)
    ids, about = writer.ids(prompt), (writer.src_lang, writer.max_len, writer.form, writer.room)
    found = Writer(watched, writer.tokenizer, chosen, *about).search(ids, chosen)
    tree = make_tree(writer.tokenizer, chosen, found, watched.searches[0].answers[0])
    written = make_translation([[]], [found], writer.tokenizer, "", chosen.length_penalty)
    return Traced(written, (_look_at(writer, chosen, prompt, tree, tree.best),))


def _look_at(writer: Writer, settings: DecodeSettings, prompt: str, tree: Tree, leaf: int) -> Trace:
    """Looks at one path; what was given to go on with stands where a translation has its source."""
    seen = look_at(writer, settings, [], tree, leaf)
    return replace(seen, text=prompt, source=(), again=partial(_look_at, writer, settings, prompt, tree))
