"""What commands share: reading what they were given, and asking the person for what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcInvalidParams

from mase_server.arguments import Argument
from mase_server.visible import reveal

if TYPE_CHECKING:
    from mase_server.lsp.server import Server


def as_map(given: Any) -> Mapping[str, Any]:
    """What a command was given, nothing where that is no map."""
    return given if isinstance(given, Mapping) else {}


async def ask(
    ls: Server, question: str, answers: Sequence[str], kind: lsp.MessageType = lsp.MessageType.Info
) -> str | None:
    """What the person chose; None for nothing. Without answers nothing is asked: text cannot be typed here."""
    if not answers:
        raise JsonRpcInvalidParams(f"{question}: give it with the command, {{'arguments': {{...}}}}")
    titles = {reveal(answer): answer for answer in answers}
    params = lsp.ShowMessageRequestParams(kind, question, [lsp.MessageActionItem(title) for title in titles])
    answer = await ls.window_show_message_request_async(params)
    return None if answer is None else titles.get(answer.title)


def choices(argument: Argument) -> list[str]:
    """The answers to a question for an argument."""
    return ["true", "false"] if argument.kind == "boolean" else list(argument.choices)
