"""Files that a user names: only regular ones are replaced, links stay, and a mistake is told before the work."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kgen.errors import KgenError
from kgen.search.output import check_outputs, write_output

ROOT = Path(__file__).resolve().parents[2]


def write(path: Path, text: str = "text") -> None:
    check_outputs(out=path)
    write_output(path, text)


def test_a_file_is_made_and_replaced(tmp_path: Path) -> None:
    write(tmp_path / "a", "one")
    write(tmp_path / "a", "two")
    assert (tmp_path / "a").read_text() == "two"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_link_stays_and_its_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for target in (tmp_path / "there" / "file", tmp_path / "there" / "new"):
        link = tmp_path / f"to-{target.name}"
        link.symlink_to(target)
        write(link)
        assert link.is_symlink() and target.read_text() == "text" and not target.is_symlink()


def test_a_device_is_written_to(tmp_path: Path) -> None:
    (tmp_path / "null").symlink_to("/dev/null")
    before = os.stat("/dev/null")
    for path in (Path("/dev/null"), tmp_path / "null"):
        write(path)
    assert os.path.samestat(before, os.stat("/dev/null")) and (tmp_path / "null").is_symlink()


def test_a_pipe_gets_the_text_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()))
    reader.start()
    write(pipe)
    reader.join(10)
    assert got == ["text"] and pipe.is_fifo()


def test_an_open_descriptor_of_a_shell_gets_the_text(tmp_path: Path) -> None:
    read, end = os.pipe()
    write(Path(f"/dev/fd/{end}"))
    os.close(end)
    assert os.read(read, 100) == b"text"
    os.close(read)


@pytest.mark.parametrize("kind", ["folder", "link to a folder", "socket", "loop", "below a file", "no folder"])
def test_whatever_else_is_there_is_left_alone(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x"
    if kind == "folder":
        path.mkdir()
    elif kind == "link to a folder":
        path.symlink_to(tmp_path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(str(path))
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "below a file":
        (tmp_path / "file").write_text("mine")
        path = tmp_path / "file" / "x"
    else:
        path = tmp_path / "none" / "x"
    with pytest.raises(KgenError) as raised:
        check_outputs(picture=path)
    assert raised.value.code == "output" and str(path) in raised.value.message and raised.value.hint
    assert not (tmp_path / "none").exists()


def test_one_file_for_both_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    os.link(tmp_path / "file", tmp_path / "hard")
    for other in ("file", "link", "hard", f"../{tmp_path.name}/file"):
        with pytest.raises(KgenError, match="same file"):
            check_outputs(out=tmp_path / "file", picture=tmp_path / other)
    with pytest.raises(KgenError, match="same file"):
        check_outputs(out=tmp_path / "new", picture=tmp_path / "." / "new")
    check_outputs(out=tmp_path / "file", picture=tmp_path / "another")


def test_the_file_that_is_printed_to_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "printed").open("w") as file:
        done = subprocess.run(
            [sys.executable, "-m", "kgen.cli", "trace", "specs/gdn.yaml", "chunk_fwd_o", "--out", "/dev/stdout"],
            cwd=ROOT, stdout=file, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 2 and "where the command prints" in done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_a_folder_of_somebody_else_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(KgenError, match="may not write"):
        check_outputs(out=tmp_path / "x")
    tmp_path.chmod(0o700)


def test_trace_tells_it_before_the_work() -> None:
    for arguments, told in ((["--out", "none/x"], "no folder"), (["--block", "24"], "blocks 0 to 23")):
        done = subprocess.run(
            [sys.executable, "-m", "kgen.cli", "trace", "specs/gdn.yaml", "chunk_fwd_o", *arguments],
            cwd=ROOT, env={**os.environ, "KGEN_TOOLCHAIN": "/nonexistent"}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 2 and told in done.stderr
