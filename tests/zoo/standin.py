"""A zoo of tiny models, made in a test's own folder."""

import json
from pathlib import Path

from regard.checkpoint.weights import Form, copy_model
from regard.zoo import ZOO, write_card


def make_zoo(home: Path, trained: Path, *names: str) -> Path:
    """Puts a copy of one model under each name, with the languages of that name."""
    for name in names:
        copy_model(trained, home / name, Form("int8"))
        path = home / name / "config.json"
        config = json.loads(path.read_text(encoding="utf-8"))
        config["settings"]["data"] |= {"src_lang": ZOO[name].src_lang, "tgt_lang": ZOO[name].tgt_lang}
        path.write_text(json.dumps(config), encoding="utf-8")
        write_card(home / name, f"regard train --config recipes/{name}.toml --out runs/{name}")
    return home
