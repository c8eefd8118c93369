"""Count what the style guide limits: `python tools/budget.py` prints the table that tests/test_rooms.py holds to."""

import ast
import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "regard"
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Budget:
    """The package in numbers; lists name what is counted, so that a test can say what is too much."""

    files: dict[str, int]  # lines of each
    functions: dict[str, int]  # lines of each, from `def` to the last one
    classes: dict[str, list[str]]  # the files of each name
    nested_imports: list[str]  # places of imports inside functions
    upward_imports: list[str]  # places of `import regard`, which reaches every room

    @property
    def short_files(self) -> list[str]:
        """Files below 60 lines."""
        return [name for name, lines in self.files.items() if lines < 60]

    @property
    def p90(self) -> float:
        """Lines that nine of ten functions stay within."""
        return statistics.quantiles(self.functions.values(), n=10)[-1]

    @property
    def repeated_classes(self) -> dict[str, list[str]]:
        """Class names that exist more than once."""
        return {name: homes for name, homes in self.classes.items() if len(homes) > 1}


def count(source: Path = SOURCE) -> Budget:
    """Read every Python file of the package."""
    files: dict[str, int] = {}
    functions: dict[str, int] = {}
    classes: dict[str, list[str]] = {}
    nested: list[str] = []
    upward: list[str] = []
    for path in sorted(source.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        name, tree = str(path.relative_to(source)), ast.parse(text)
        files[name] = len(text.splitlines())
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom) and _reaches_up(node):
                upward.append(f"{name}:{node.lineno}")
            elif isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, []).append(name)
            elif isinstance(node, Function):
                functions[f"{name}:{node.lineno} {node.name}"] = (node.end_lineno or node.lineno) - node.lineno + 1
        nested += [f"{name}:{line}" for line in sorted(set(_nested_imports(tree)))]
    return Budget(files, functions, classes, nested, upward)


def _nested_imports(tree: ast.AST) -> Iterator[int]:
    for function in ast.walk(tree):
        if isinstance(function, Function):
            yield from (node.lineno for node in ast.walk(function) if isinstance(node, ast.Import | ast.ImportFrom))


def _reaches_up(node: ast.Import | ast.ImportFrom) -> bool:
    if isinstance(node, ast.Import):
        return any(alias.name == "regard" for alias in node.names)
    if node.module != "regard":
        return False
    modules = {path.stem for path in SOURCE.glob("*.py")} | {path.name for path in SOURCE.iterdir() if path.is_dir()}
    return any(alias.name != "__version__" and alias.name not in modules for alias in node.names)


def main() -> None:
    budget = count()
    print(f"files                    {len(budget.files)}")
    print(f"lines                    {sum(budget.files.values()):,}")
    print(f"files under 60 lines     {len(budget.short_files) / len(budget.files):.1%}")
    print(f"longest file             {max(budget.files.items(), key=lambda item: item[1])}")
    print(f"functions                {len(budget.functions):,}, nine of ten within {budget.p90:.0f} lines")
    print(f"functions over 40 lines  {sorted(name for name, lines in budget.functions.items() if lines > 40)}")
    print(f"repeated class names     {budget.repeated_classes}")
    print(
        f"imports in functions     {len(budget.nested_imports)}",
        dict(Counter(p.split("/")[0] for p in budget.nested_imports)),
    )
    print(f"import regard            {budget.upward_imports}")


if __name__ == "__main__":
    main()
