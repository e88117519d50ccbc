"""Editors that are stopped in order when their test ends."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from editing import Editor


@pytest.fixture
async def new_editor(tmp_path):
    """A function that starts an editor with a server of its own."""
    editors = []

    async def start(**arguments):
        editor = Editor(tmp_path, **arguments)
        editor.initialized = await editor.start()
        editors.append(editor)
        return editor

    yield start
    for editor in editors:
        if editor.process.returncode is None:
            await editor.stop()


@pytest.fixture
async def editor(new_editor):
    """An editor that trusts its folder."""
    return await new_editor()
