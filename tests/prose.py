"""Check the prose of docstrings, comments and Markdown pages, as `make lint` does.

`[tool.prose]` in pyproject.toml has the patterns of constructions that are hard to read, and the limit of matches
per 1,000 words for each path. With paths as arguments, every match in them is printed, and no limit applies.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
TOOL_COMMENT = re.compile(r"#\s*(noqa|type:|fmt:|pragma|ruff|!)")


def main(paths: list[str]) -> int:
    """Return 1 if a path is over its limit."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["prose"]
    patterns = {name: re.compile(text, re.IGNORECASE | re.MULTILINE) for name, text in config["patterns"].items()}
    limits = dict.fromkeys(paths) or config["limits"]
    too_many = False
    for path, limit in limits.items():
        words, matches = check(Path(path) if paths else ROOT / path, patterns)
        if paths:
            print(*matches, sep="\n")
        rate = 1000 * len(matches) / max(1, words)
        over = limit is not None and rate > limit
        too_many = too_many or over
        if paths or over:
            allowed = f"; the limit is {limit}" if over else ""
            print(f"{path}: {rate:.1f} constructions that are hard to read per 1,000 words{allowed}")
    if too_many:
        print("`python tests/prose.py PATH` lists them.")
    return int(too_many)


def check(path: Path, patterns: dict[str, re.Pattern[str]]) -> tuple[int, list[str]]:
    """Return the number of words of a file or folder, and a line for each match."""
    files = [path] if path.is_file() else sorted([*path.rglob("*.py"), *path.rglob("*.md")])
    words, matches = 0, []
    for file in files:
        source = file.read_text("utf-8")
        for line, text in python_texts(source) if file.suffix == ".py" else markdown_texts(source):
            words += len(WORD.findall(text))
            for name, pattern in patterns.items():
                for match in pattern.finditer(text):
                    at = line + text.count("\n", 0, match.start())
                    matches.append(f"{file}:{at}: {name}: {match[0].strip()!r}")
    return words, matches


def python_texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and text of every docstring, attribute docstring and comment."""
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else []:
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield statement.lineno, value.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not TOOL_COMMENT.match(token.string):
            yield token.start[0], token.string.lstrip("# ")


def markdown_texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield each line outside code, without inline code."""
    in_code = False
    for number, line in enumerate(source.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code and not line.startswith("    "):
            yield number, re.sub(r"`[^`]*`", "", line)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
