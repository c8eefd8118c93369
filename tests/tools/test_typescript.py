"""The page's types are those of the JSON."""

from pathlib import Path

from tools.typescript import typescript

FILE = Path(__file__).parents[2] / "web" / "src" / "trace.ts"


def test_the_file_is_what_the_generator_writes():
    assert FILE.read_text(encoding="utf-8") == typescript(), "run: python tools/typescript.py > web/src/trace.ts"


def test_types_are_written_as_typescript_has_them():
    text = typescript()
    assert "export interface View {" in text
    assert "  entropy: ((number | null)[])[];" in text
    assert "  translatedText: string | string[];" in text
    assert "  /** the node before, or -1 */\n  parent: number;" in text


def test_every_type_is_written_once():
    names = [line for line in typescript().splitlines() if line.startswith("export interface")]
    assert len(names) == len(set(names)) > 40
