"""Script files are read at submission: size-limited, regular files only, and only what a shell reads."""

from __future__ import annotations

import os

import pytest

from fairway.engines.local.provision.script_reader import LONGEST, reader
from fairway.units.launcher import LauncherScript


@pytest.mark.parametrize("first", ["#!/bin/bash", "#!/usr/bin/env bash", "#! /bin/sh -e", "#!/usr/bin/env -S bash -e"])
def test_a_program_is_read_when_a_shell_reads_it(tmp_path, first):
    (tmp_path / "train").write_text(f"{first}\ntorchrun t.py\n")
    assert "torchrun" in (reader(tmp_path)(LauncherScript("./train", by_shell=False)) or "")


@pytest.mark.parametrize("content", [b"#!/usr/bin/python\n", b"\x7fELF\0\0", b"torchrun\n", b""])
def test_any_other_program_is_left_alone(tmp_path, content):
    (tmp_path / "train").write_bytes(content)
    assert reader(tmp_path)(LauncherScript("train", by_shell=False)) is None


def test_what_cannot_be_read_is_none(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "long.sh").write_text("#" * (2 * LONGEST))
    read = reader(tmp_path)
    assert [read(LauncherScript(name, by_shell=True)) for name in ("pipe", "folder", "none.sh", "a\0b")] == [None] * 4
    assert len(read(LauncherScript("long.sh", by_shell=True)) or "") == LONGEST
    assert reader(None)(LauncherScript("long.sh", by_shell=True)) is None
