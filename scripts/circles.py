#!/usr/bin/env python3
"""Finds modules of a crate that import each other in a circle, file by file; ends with 1 if there are any.

    scripts/circles.py [CRATE...] [--edges]

What a file imports is what its `use` lines and its inline paths (`crate::`, `super::`, `self::`) name, followed through
`pub use` to the file where it is defined. Test-only code counts for nothing.

A parent and its child modules may name each other where they are one mechanism cut into files: the child adds
methods to the parent's type, the parent keeps the child's. So a file and its child modules stand for one module in
what lies outside of them, unless the parent is a room: a file of declarations alone, whose children stand for
themselves. Within such a mechanism children must not be in a circle among themselves.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def without_comments(text: str) -> str:
    """The code of a file, with comments, strings and characters taken out."""
    token = re.compile(
        r"""//[^\n]*|/\*.*?\*/|r(\#*)".*?"\1|"(?:\\.|[^"\\])*"|'(?:\\.[^']*|[^'\\])'""", re.S
    )
    return token.sub(lambda found: '""' if found.group().endswith('"') else " ", text)


def end_of_item(code: str, start: int) -> int:
    """Where the item that begins at `start` ends: behind its braces, or its semicolon."""
    depth = 0
    for at in range(start, len(code)):
        if code[at] in "{([":
            depth += 1
        elif code[at] in "})]":
            depth -= 1
            if depth == 0 and code[at] == "}":
                return at + 1
        elif code[at] == ";" and depth == 0:
            return at + 1
    return len(code)


def without_tests(code: str) -> str:
    """The code without items behind `#[cfg(test)]`."""
    mark = re.compile(r"#\[cfg\((?:all\()?test\b[^\]]*\]")
    while found := mark.search(code):
        code = code[: found.start()] + code[end_of_item(code, found.end()) :]
    return code


def leaves(tree: str) -> list[tuple[list[str], str]]:
    """The paths of a `use` tree, each with the name that it gets here."""
    tree = tree.strip()
    if "{" not in tree:
        path, _, name = tree.partition(" as ")
        parts = [part.strip() for part in path.split("::") if part.strip()]
        if parts and parts[-1] == "self" and len(parts) > 1:
            parts.pop()
        return [(parts, (name or parts[-1]).strip())] if parts else []
    head, rest = tree.split("{", 1)
    inner = rest[: rest.rindex("}")]
    prefix = [part.strip() for part in head.split("::") if part.strip()]
    found, depth, piece = [], 0, ""
    for letter in inner + ",":
        if letter == "," and depth == 0:
            for parts, name in leaves(piece):
                if parts == ["self"]:
                    parts, name = [], prefix[-1]
                found.append((prefix + parts, name))
            piece = ""
            continue
        depth += (letter == "{") - (letter == "}")
        piece += letter
    return found


class Module:
    def __init__(self, path: tuple[str, ...], file: Path):
        self.path, self.file = path, file
        self.code = without_tests(without_comments(file.read_text()))
        self.names: dict[str, list[str]] = {}
        self.globs: list[list[str]] = []
        self.paths: list[list[str]] = []
        # Code of modules within this file lies one level deeper: their `super` is this file.
        self.children: set[str] = set(re.findall(r"\bmod\s+(\w+)\s*;", self.code))
        inner = set(re.findall(r"\bmod\s+(\w+)\s*\{", self.code))
        rest = self.code
        for use in re.finditer(r"\buse\s+([^;]+);", self.code):
            for parts, name in leaves(use.group(1)):
                if parts[-1] == "*":
                    self.globs.append(parts[:-1])
                else:
                    self.names[name] = parts
                self.paths.append(parts)
            rest = rest.replace(use.group(), " ", 1)
        for found in re.finditer(r"(?<![\w:])((?:\w+\s*::\s*)+\w+)", rest):
            parts = re.split(r"\s*::\s*", found.group(1))
            if parts[0] in ("crate", "super", "self") or parts[0] in self.children:
                self.paths.append(parts)
        if inner:
            self.paths = [path for path in self.paths if path[0] not in inner]
        items = re.compile(r"^\s*(?:#\[[^\]]*\]\s*|pub(?:\([^)]*\))?\s+)*(?:fn|struct|enum|impl|trait|const|static|type|macro_rules)\b", re.M)
        self.is_room = not items.search(rest)


class Crate:
    def __init__(self, source: Path):
        self.modules: dict[tuple[str, ...], Module] = {}
        for root in ("lib.rs", "main.rs"):
            if (source / root).exists():
                self.read((), source / root)
                break

    def read(self, path: tuple[str, ...], file: Path):
        module = self.modules[path] = Module(path, file)
        home = file.parent if file.name in ("lib.rs", "main.rs", "mod.rs") else file.with_suffix("")
        for child in sorted(module.children):
            for at in (home / f"{child}.rs", home / child / "mod.rs"):
                if at.exists():
                    self.read(path + (child,), at)

    def resolve(self, here: tuple[str, ...], parts: list[str], seen=()) -> tuple[str, ...] | None:
        """The module in which what `parts` names, as seen from `here`, is defined; None outside of the crate."""
        if (here, tuple(parts)) in seen or not parts:
            return None
        seen = (*seen, (here, tuple(parts)))
        if parts[0] == "crate":
            at, parts = (), parts[1:]
        elif parts[0] in ("self", "super"):
            at = here
            while parts and parts[0] in ("self", "super"):
                if parts[0] == "super":
                    at = at[:-1]
                parts = parts[1:]
        elif here + (parts[0],) in self.modules:
            at = here
        elif parts[0] in self.modules[here].names:
            named = self.modules[here].names[parts[0]]
            if named[0] == parts[0]:
                return None
            return self.resolve(here, named + parts[1:], seen)
        else:
            return None
        while parts:
            if at + (parts[0],) in self.modules:
                at, parts = at + (parts[0],), parts[1:]
            elif parts[0] in self.modules[at].names:
                return self.resolve(at, self.modules[at].names[parts[0]] + parts[1:], seen) or None
            else:
                for glob in self.modules[at].globs:
                    target = self.resolve(at, glob + [parts[0]], seen)
                    if target and re.search(rf"\b{parts[0]}\b", self.modules[target].code) and target != at:
                        return target
                break
        return at

    def edges(self) -> dict[tuple[str, ...], set[tuple[str, ...]]]:
        found = {}
        for path, module in self.modules.items():
            targets = {self.resolve(path, parts) for parts in module.paths}
            found[path] = {target for target in targets if target is not None and target != path}
        return found


def circles(edges: dict) -> list[list]:
    """Tarjan's strongly connected components of more than one node."""
    order, low, stack, found = {}, {}, [], []

    def visit(node):
        order[node] = low[node] = len(order)
        stack.append(node)
        for target in sorted(edges.get(node, ())):
            if target not in order:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], order[target])
        if low[node] == order[node]:
            component = []
            while True:
                component.append(stack.pop())
                if component[-1] == node:
                    break
            if len(component) > 1:
                found.append(sorted(component))

    sys.setrecursionlimit(10000)
    for node in sorted(edges):
        if node not in order:
            visit(node)
    return found


def name(path: tuple[str, ...]) -> str:
    return "::".join(path) or "crate"


def report(crate: Crate, show_edges: bool = False) -> list[str]:
    """Lines that name each circle of a crate: among what stands for itself, and within each
    mechanism."""
    edges = crate.edges()
    if show_edges:
        return [f"{name(path)} -> {name(to)}" for path in sorted(edges) for to in sorted(edges[path])]
    parents = {path[:at] for path in edges for at in range(len(path))}
    mechanisms = {path for path in parents if path == () or not crate.modules[path].is_room}

    def stands_for(path, parent):
        """The node for `path` among what is below `parent`: its uppermost mechanism there, or itself."""
        for length in range(len(parent) + 1, len(path) + 1):
            if path[:length] in mechanisms:
                return path[:length]
        return path

    lines = []
    for parent in sorted(mechanisms):
        inside: dict = {}
        why: dict = {}
        for path in edges:
            if path[: len(parent)] != parent or path == parent:
                continue
            node = stands_for(path, parent)
            inside.setdefault(node, set())
            for target in edges[path]:
                if target[: len(parent)] != parent or target == parent:
                    continue
                other = stands_for(target, parent)
                if other != node:
                    inside[node].add(other)
                    why.setdefault((node, other), []).append(f"{name(path)} -> {name(target)}")
        for circle in circles(inside):
            lines.append(f"{len(circle)} modules of {name(parent)} import each other in a circle:")
            for node in circle:
                for other in sorted(inside[node] & set(circle)):
                    lines += [f"    {edge}" for edge in why[node, other]]
    return lines


def main() -> int:
    wanted = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    found = False
    for source in sorted(ROOT.glob("crates/*/src")):
        if wanted and source.parent.name not in wanted:
            continue
        lines = report(Crate(source), "--edges" in sys.argv)
        if lines:
            found = True
            print(f"{source.parent.name}:", *lines, sep="\n  ")
    return int(found and "--edges" not in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
