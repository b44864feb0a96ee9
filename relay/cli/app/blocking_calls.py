"""Finds calls that hold up the event loop, in the text of async functions."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

BLOCKING = frozenset(
    {
        "open",
        "os.popen",
        "os.system",
        "os.wait",
        "requests.api.delete",
        "requests.api.get",
        "requests.api.head",
        "requests.api.patch",
        "requests.api.post",
        "requests.api.put",
        "requests.api.request",
        "socket.create_connection",
        "subprocess.call",
        "subprocess.check_call",
        "subprocess.check_output",
        "subprocess.run",
        "time.sleep",
        "urllib.request.urlopen",
        "httpx.get",
        "httpx.post",
        "psycopg.connection.Connection.connect",
    }
)
"""What waits for something else while the event loop waits for it."""

_HOLDERS = (ModuleType, type)
_CALLED = (FunctionType, BuiltinFunctionType, MethodType, type)


def blocking_calls(handler: Callable[..., Any]) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each call in an async function that blocks, by a list of what is known
    to. What other functions call is not seen. Nothing where the text is not at hand."""
    function = inspect.unwrap(handler)
    function = getattr(function, "__func__", function)
    if not inspect.isfunction(function):
        return
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, SyntaxError, TypeError):
        return
    for node in _own_nodes(tree.body[0]):
        if isinstance(node, ast.Call) and (name := _name(node.func, function.__globals__)) in BLOCKING:
            yield first + node.lineno - 1, name


def _own_nodes(top: ast.AST) -> Iterator[ast.AST]:
    """Yield what a function does itself: a function in it may be meant for a thread."""
    for node in ast.iter_child_nodes(top):
        if not isinstance(node, ast.FunctionDef | ast.Lambda):
            yield node
            yield from _own_nodes(node)


def _name(called: ast.expr, names: dict[str, Any]) -> str:
    """Return the full name of what is called, through the module's names; empty if it can't be told."""
    path: list[str] = []
    while isinstance(called, ast.Attribute):
        path.append(called.attr)
        called = called.value
    if not isinstance(called, ast.Name):
        return ""
    if called.id == "open" and "open" not in names and not path:
        return "open"
    found = names.get(called.id)
    for part in reversed(path):
        # Nothing is read of other objects: a proxy such as Flask's `current_app` raises, and some open what
        # they stand for.
        found = getattr(found, part, None) if issubclass(type(found), _HOLDERS) else None
    if not issubclass(type(found), _CALLED):
        return ""
    module = getattr(found, "__module__", "") or ""
    own = getattr(found, "__qualname__", "")
    return f"{'os' if module == 'posix' else module}.{own}".removeprefix("builtins.")
