"""Files are written whole or not at all, and never over anything but a file."""

from __future__ import annotations

import errno
import os
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from graphopt import files, scratch
from graphopt.errors import GraphoptError, UsageError

pytestmark = pytest.mark.skipif(os.name == "nt", reason="devices and pipes of Unix")
ROOT = Path(__file__).resolve().parents[1]


def device(folder: Path, minor: int) -> Path:
    """A node of a private folder: 3 is what /dev/null is, 7 what /dev/full is."""
    path = folder / f"device{minor}"
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, minor))
        path.open("wb").close()
    except PermissionError:
        pytest.skip("only root makes devices, and not in every container")
    return path


def test_a_device_stays_what_it_is(tmp_path):
    null = device(tmp_path, 3)
    files.write_text(null, "text")
    assert stat.S_ISCHR(null.stat().st_mode)
    full = device(tmp_path, 7)
    with pytest.raises(GraphoptError, match="no space left") as caught:
        files.write_text(full, "text")
    assert "free some space" in str(caught.value.hint)
    assert stat.S_ISCHR(full.stat().st_mode)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["device3", "device7"]


def test_a_pipe_is_written_into_if_somebody_reads(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(GraphoptError, match="nobody reads"):
        files.write_text(pipe, "text")
    descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    files.write_text(pipe, "text")
    assert os.read(descriptor, 10) == b"text"
    os.close(descriptor)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_sockets_and_folders_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("s")
        with pytest.raises(UsageError, match="is a socket"):
            files.write_text(Path("s"), "text")
    with pytest.raises(UsageError, match="is a folder"):
        files.write_text(tmp_path, "text")


def test_a_link_stays_and_its_target_is_written(tmp_path):
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "file", tmp_path / "link"
    link.symlink_to("real/file")
    files.write_text(link, "first")  # it leads nowhere yet
    files.write_text(link, "second")
    assert link.is_symlink() and target.read_text() == "second" and not target.is_symlink()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "to-pipe").symlink_to(pipe)
    with pytest.raises(GraphoptError, match="nobody reads"):
        files.write_text(tmp_path / "to-pipe", "text")
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_what_became_no_file_meanwhile_is_not_replaced(tmp_path):
    path = tmp_path / "out"
    with files.Draft(path) as draft:
        draft.file.write(b"text")
        os.mkfifo(path)
        with pytest.raises(OSError, match="no longer a regular file"):
            draft.commit()
    assert [p.name for p in tmp_path.iterdir()] == ["out"] and stat.S_ISFIFO(path.stat().st_mode)


def test_standard_output_goes_on_where_it_is(tmp_path):
    log = tmp_path / "log"
    log.write_text("before\n")
    code = "from pathlib import Path; from graphopt import files; files.write_text(Path('/dev/stdout'), 'text\\n')"
    with log.open("a") as out:
        subprocess.run([sys.executable, "-c", code], stdout=out, check=True, cwd=ROOT)
    assert log.read_text() == "before\ntext\n"


def test_threads_share_the_folder_of_their_process(tmp_path):
    code = (
        "import sys, threading; from graphopt import scratch\n"
        "sys.setswitchinterval(1e-6); together = threading.Barrier(8); found = []\n"
        "def ask():\n"
        "    together.wait()\n"
        "    with scratch.folder('a') as f: found.append(f.parent); together.wait()\n"
        "for _ in range(20):\n"
        "    threads = [threading.Thread(target=ask) for _ in range(8)]; found.clear(); scratch.abandon()\n"
        "    [t.start() for t in threads]; [t.join() for t in threads]; assert len(set(found)) == 1, found\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, env={**os.environ, "TMPDIR": str(tmp_path)})
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes that fork")
def test_a_forked_process_ends_nothing_of_its_parent(tmp_path):
    code = (
        "import os, sys, threading; from pathlib import Path; from graphopt import files, scratch\n"
        "together = threading.Barrier(2)\n"
        "def work():\n"
        "    with scratch.folder('a') as f, files.Draft(Path(sys.argv[1])) as d:\n"
        "        together.wait(); together.wait(); assert f.is_dir(); d.commit()\n"
        "thread = threading.Thread(target=work); thread.start(); together.wait()\n"
        "if not (child := os.fork()):\n"
        "    with scratch.folder('b'): sys.exit()\n"
        "os.waitpid(child, 0); together.wait(); thread.join()\n"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code, tmp_path / "out"], cwd=ROOT, check=True, env=environment)
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_full_disk_leaves_the_old_file(tmp_path):
    path = tmp_path / "out"
    path.write_text("old")
    code = (
        "import resource, signal, sys; from pathlib import Path; from graphopt import files\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "files.write_text(Path(sys.argv[1]), 'x' * 100_000)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, cwd=ROOT, check=False)
    assert "can't be written: file too large" in done.stderr
    assert path.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["out"]


def test_of_files_that_belong_together_all_or_none_are_written(tmp_path):
    texts = {tmp_path / name: name for name in ("a", "b", "c")}
    files.write_texts(texts)
    assert {path: path.read_text() for path in tmp_path.iterdir()} == texts
    code = (
        "import resource, signal, sys; from pathlib import Path; from graphopt import files\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "files.write_texts({Path(sys.argv[1]) / name: name * 400 for name in ('a', 'b', 'ccc')})\n"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, cwd=ROOT, check=False)
    assert f"{tmp_path / 'ccc'}: can't be written: file too large" in done.stderr
    assert {path: path.read_text() for path in tmp_path.iterdir()} == texts
    (tmp_path / "folder").mkdir()
    for odd, error in (
        (tmp_path / "folder", UsageError),
        (Path(os.devnull), UsageError),
        (tmp_path / "no/d", GraphoptError),
    ):
        with pytest.raises(error, match=odd.name):
            files.write_texts({**dict.fromkeys(texts, "new"), odd: "x"})
    assert {path: path.read_text() for path in texts} == texts


def test_drafts_of_the_killed_are_removed_and_those_of_others_stay(tmp_path):
    path = tmp_path / "out"
    code = (
        "import os, sys; from pathlib import Path; from graphopt.files import Draft\n"
        "draft = Draft(Path(sys.argv[1])); draft.file.write(b'x'); draft.file.flush(); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, path], cwd=ROOT, check=False)
    (left,) = tmp_path.iterdir()
    with files.Draft(path) as alive:
        assert not left.exists()
        files.write_text(path, "text")
        assert alive.path.exists()
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.mark.skipif(scratch.fcntl is None, reason="nothing is locked on Windows")
def test_where_nothing_can_be_locked_files_are_written_and_those_of_others_stay(tmp_path, monkeypatch):
    """As in network file systems without locks: a draft that could not be locked was made anew without end."""

    def refuses(file, how):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(scratch.fcntl, "flock", refuses)
    with files.Draft(tmp_path / "out") as alive:
        files.write_text(tmp_path / "out", "text")
        assert alive.path.exists()
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_folders_of_the_killed_are_removed(tmp_path, monkeypatch):
    code = (
        "import os; from graphopt import scratch\n"
        "with scratch.folder('a') as f: (f / 'x').touch(); print(f, flush=True); {}"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}

    def start(end):
        return subprocess.Popen(
            [sys.executable, "-c", code.format(end)], cwd=ROOT, env=environment, stdout=subprocess.PIPE,
            stdin=subprocess.PIPE, text=True,
        )  # fmt: skip

    with start("os.kill(os.getpid(), 9)") as killed, start("input()") as alive:
        lost, kept = Path(killed.stdout.readline().strip()), Path(alive.stdout.readline().strip())
        killed.wait()
        foreign = tmp_path / "graphopt-of-another"  # without a lock: not known to be anybody's
        foreign.mkdir()
        with start("pass") as third:
            third.wait()
        assert not lost.exists() and kept.exists() and foreign.exists()
        alive.communicate("\n")
    assert [p.name for p in tmp_path.iterdir()] == [foreign.name]


def test_many_threads_write_one_file(tmp_path):
    path = tmp_path / "out"
    texts = [str(i) * 10_000 for i in range(8)]
    threads = [threading.Thread(target=lambda t=t: [files.write_text(path, t) for _ in range(20)]) for t in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_text() in texts and [p.name for p in tmp_path.iterdir()] == ["out"]


def test_rights_are_those_of_new_files_and_nobody_elses_change(tmp_path, monkeypatch):
    """They were had by setting those of the whole process to all for a moment: two threads at it could leave them so."""
    mask = os.umask(0o027)
    try:
        monkeypatch.setattr(os, "umask", None)
        files.write_text(tmp_path / "out", "text")
    finally:
        monkeypatch.undo()
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o640


def test_abandoned_work_leaves_nothing(tmp_path):
    code = (
        "import os, sys; from pathlib import Path; from graphopt import files, scratch\n"
        "with scratch.folder('a') as f, files.Draft(Path(sys.argv[1])) as d: scratch.abandon(); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path / "out"], cwd=ROOT, check=True,
                   env={**os.environ, "TMPDIR": str(tmp_path)})  # fmt: skip
    assert not list(tmp_path.iterdir())
    assert scratch.PREFIX == "graphopt-"
