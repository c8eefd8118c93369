"""Write the index of files into docs/architecture.md: `python tools/index.py`."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE, PAGE = ROOT / "src" / "regard", ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- index: python tools/index.py -->", "<!-- /index -->"


def first_line(path: Path) -> str:
    """Return what a file says about itself in its first line."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return (ast.get_docstring(ast.parse(text)) or "").split("\n")[0]
    return text.split("\n")[0].removeprefix("// ")


def index() -> str:
    """List the files of each room with their first lines."""
    files = sorted(path for ending in ("*.py", "*.h", "*.cpp") for path in SOURCE.rglob(ending))
    lines, room = [], None
    for path in files:
        name = path.relative_to(SOURCE)
        if (here := str(name.parent)) != room:
            room = here
            lines += ["", f"**{'top level' if room == '.' else room + '/'}**", ""]
        lines.append(f"- `{name.name}`: {first_line(path)}")
    return "\n".join(lines)


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    pattern = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    PAGE.write_text(pattern.sub(lambda _: f"{BEGIN}\n{index()}\n\n{END}", text), encoding="utf-8")


if __name__ == "__main__":
    main()
