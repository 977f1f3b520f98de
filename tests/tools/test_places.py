"""Where people run it: disks that promise less, mounts, links and devices, a cluster's variables and signals, users
without a home, a notebook."""
import ast
import errno
import io
import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
import torch

from annotated_transformer import __version__
from annotated_transformer.commands import cli
from annotated_transformer.decoding.translation import cut_sources
from annotated_transformer.tools import files, options, processes
from annotated_transformer.tools.files import InputError, building, cache_folder, creating, taken, writing
from annotated_transformer.tools.records import add_line, check_place, read_lines
from annotated_transformer.training import loop
from annotated_transformer.training.loop import train
from annotated_transformer.training.starting import start_run
from annotated_transformer.training.presets import TrainingConfig
from here import ROOT, SHAPE

ROOT_USER = os.name == "posix" and os.getuid() == 0


def in_namespace(script: str, *arguments) -> str:
    "What a shell script prints that mounts things of its own; where that is not allowed, the test says why."
    if shutil.which("unshare") is None:
        pytest.skip("no unshare here")
    probe = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, text=True)
    if probe.returncode:
        pytest.skip(f"no mounts here: {probe.stderr.strip()}")
    done = subprocess.run(["unshare", "-m", "sh", "-ec", script, "sh", *map(str, arguments)], capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


MAKE = f"""{sys.executable} -c '
import sys
from pathlib import Path
from annotated_transformer.tools.files import {{}}
with {{}}(Path(sys.argv[1])) as new:
    (new / "file").write_text("made")
    (new / "inner").mkdir()
' "$1/out"; find "$1/out" -mindepth 1 -printf "%P\\n" | sort"""


# --- what is there already --------------------------------------------------------------------------------------------

@pytest.mark.parametrize("mount", [
    'mount -t tmpfs none "$1/out"', 'mkdir "$1/other"; mount --bind "$1/other" "$1/out"',
    'mount -t tmpfs none "$1"; mkdir "$1/out"; mount -t tmpfs none "$1/out"; mount -o remount,ro "$1"',
    'mount -t tmpfs none "$1/out"; mkdir "$1/out/lost+found"'], ids=["disk", "bind", "read-only parent", "lost+found"])
@pytest.mark.parametrize("how", ["creating", "building"])
def test_a_mount_point_is_filled(mount, how, tmp_path):
    (tmp_path / "out").mkdir()
    found = in_namespace(f"{mount}; {MAKE.format(how, how)}", tmp_path)
    assert found.split() == ["file", "inner", *(["lost+found"] if "lost" in mount else [])]


def test_a_folder_that_is_filled_is_replaced_whole(tmp_path):
    "Files go, folders of others stay; what a kill left is finished or gone."
    out = tmp_path / "out"
    (out / "run").mkdir(parents=True)
    (out / "old").write_text("x")
    with pytest.raises(RuntimeError), building(out) as new:
        (new / "file").write_text("a")
        raise RuntimeError
    assert {path.name for path in out.iterdir()} == {"run", "old"}
    with building(out) as new:
        (new / "file").write_text("b")
    assert {path.name for path in out.iterdir()} == {"run", "file"} and (out / "file").read_text() == "b"
    (out / files.FILLING).mkdir()  # killed before it was complete
    with building(out) as new:
        (new / "other").write_text("c")
    assert {path.name for path in out.iterdir()} == {"run", "other"}
    (out / files.WHOLE).mkdir()  # killed while it was put in place
    (out / files.WHOLE / "last").write_text("d")
    files.settle(out)
    assert {path.name for path in out.iterdir()} == {"run", "last"}
    with pytest.raises(InputError, match="exists already"), creating(out):
        pass


def test_a_folder_has_one_maker_at_a_time(tmp_path):
    for _ in range(2):  # a new one, then one that is filled
        with building(tmp_path / "out") as new:
            (new / "file").touch()
            for second in (building, creating):
                with pytest.raises(InputError, match="out: another process is making it"), second(tmp_path / "out"):
                    pass
        assert os.listdir(tmp_path) == ["out"] and os.listdir(tmp_path / "out") == ["file"]


def test_links_are_written_through_and_devices_written_to(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "dangling").symlink_to("later")
    for name in ("link", "dangling"):
        with writing(tmp_path / name, "w") as file:
            file.write("new")
        assert (tmp_path / name).is_symlink() and (tmp_path / name).read_text() == "new"
    check_place(Path(os.devnull))
    with writing(os.devnull, "w") as file:
        file.write("gone")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    (tmp_path / "folder").mkdir()
    (tmp_path / "to_folder").symlink_to("folder")
    with creating(tmp_path / "to_folder") as new:
        (new / "x").touch()
    assert (tmp_path / "to_folder").is_symlink() and (tmp_path / "folder" / "x").exists()
    with pytest.raises(InputError, match="exists already"), creating(Path(os.devnull)):
        pass


def test_a_mounted_file_is_written(tmp_path):
    (tmp_path / "a").write_text("old")
    (tmp_path / "b").touch()
    in_namespace(f"""mount --bind "$1/a" "$1/b"; {shlex.quote(sys.executable)} -c '
import sys
from annotated_transformer.tools.files import writing
with writing(sys.argv[1] + "/b", "w") as file:
    file.write("new")
' "$1" """, tmp_path)
    assert (tmp_path / "a").read_text() == "new" and sorted(os.listdir(tmp_path)) == ["a", "b"]


# --- disks with fewer promises ----------------------------------------------------------------------------------------

@pytest.mark.parametrize("error", [errno.EINVAL, errno.EACCES])
def test_a_disk_that_lets_nobody_wait_is_trained_on(error, data, tmp_path, monkeypatch):
    def refused(*arguments):
        raise OSError(error, os.strerror(error))
    monkeypatch.setattr(os, "fsync", refused)
    run = start_run(tmp_path / "run", data, SHAPE, TrainingConfig(steps=2, save_every=2, batch_tokens=200))
    assert train(run) and run.checkpoints.newest() == 2


def test_a_disk_that_is_broken_is_named_and_not_called_full(data, tmp_path, monkeypatch):
    def broken(*arguments):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    run = start_run(tmp_path / "run", data, SHAPE, TrainingConfig(steps=2, save_every=2, batch_tokens=200))
    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(InputError, match="Input/output error") as error:
        train(run)
    assert "make room" not in str(error.value)


def test_a_disk_that_renames_over_nothing(tmp_path, monkeypatch):
    def refused(self, target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    monkeypatch.setattr(Path, "replace", refused)
    (tmp_path / "x").write_text("old")
    with writing(tmp_path / "x", "w") as file:
        file.write("new")
    assert (tmp_path / "x").read_text() == "new" and os.listdir(tmp_path) == ["x"]
    with pytest.raises(FileExistsError), writing(tmp_path / "y", "w") as file:
        file.write("new")


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    "And not the temporary one; a disk that fills up as one writes names none."
    with pytest.raises(OSError, match="No space left") as full, writing(tmp_path / "x"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(FileNotFoundError) as lost, writing(tmp_path / "gone" / "x"):
        pass
    assert [full.value.filename, lost.value.filename] == [str(tmp_path / "x"), str(tmp_path / "gone" / "x")]


@pytest.mark.skipif(not ROOT_USER, reason="another user's files: only root can make them")
def test_another_users_files_in_a_folder_of_both(tmp_path):
    "Locks are shared, and a line is added by putting a new file in the place of the other's."
    folder = tmp_path / "both"
    folder.mkdir()
    for name in ("lock", "lines"):
        (folder / name).write_text("" if name == "lock" else '{"a": 1}\n')
    folder.chmod(0o777)
    for place in (tmp_path, *tmp_path.parents):
        if place != Path("/") and not place.stat().st_mode & stat.S_IXOTH:
            place.chmod(place.stat().st_mode | stat.S_IXOTH)
    child = os.fork()
    if child == 0:
        try:
            os.setgid(12345)
            os.setuid(12345)
            with taken(folder / "lock", wait=True), taken(folder / "lock"):
                add_line(folder / "lines", {"b": 2})
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert read_lines(folder / "lines") == [{"a": 1}, {"b": 2}]


# --- clusters ---------------------------------------------------------------------------------------------------------

ALL = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}


@pytest.mark.parametrize("given", [{}, *({name: value} for name, value in ALL.items()), {**ALL, "WORLD_SIZE": ""},
                                   {name: ALL[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")},
                                   {**ALL, "RANK": "node3"}], ids=lambda given: " ".join(given) or "nothing")
def test_variables_in_parts_say_nothing(given, monkeypatch, capsys):
    "No command is silent, fails or waits because a variable is set."
    for name in ALL:
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    options.say("spoken")
    with pytest.raises(SystemExit):
        cli.main(["trian"])
    with processes.process_group():
        assert processes.world_size() == 1
    assert "spoken" in (told := capsys.readouterr().err) and "unknown command" in told


def test_more_processes_than_gpus(monkeypatch):
    for name, value in ALL.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(processes, "training_device", lambda: torch.device("cuda:1"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(InputError, match="has 1 GPU: give torchrun --nproc-per-node 1"), processes.process_group():
        pass


def test_a_process_does_not_wait_long_for_a_torchrun_that_was_killed(monkeypatch):
    for name, value in {**ALL, "TORCHELASTIC_USE_AGENT_STORE": "True"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(processes, "training_device", lambda: torch.device("cpu"))
    asked = []
    monkeypatch.setattr(processes, "timedelta", lambda minutes: asked.append(minutes) or timedelta(seconds=1))
    with pytest.raises(InputError, match="localhost, port 1: does not answer"), processes.process_group():
        pass
    assert asked == [1]


def test_all_variables_together_are_a_place(monkeypatch, capsys):
    for name, value in ALL.items():
        monkeypatch.setenv(name, value)
    assert options.place_in_group() == (1, 1, 2)
    options.say("not spoken")
    cut_sources([[4, 5, 6]], 2)  # a warning is spoken as everything else
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1"])
def test_a_signal_ends_with_a_checkpoint(name, data, tmp_path, monkeypatch):
    run, whole = start_run(tmp_path / "run", data, SHAPE, TrainingConfig(steps=9, batch_tokens=200)), loop.update

    def update(objective, optimizer, parts, tokens, config, step, *rest):
        if step == 3:
            os.kill(os.getpid(), getattr(signal, name))
        return whole(objective, optimizer, parts, tokens, config, step, *rest)
    monkeypatch.setattr(loop, "update", update)
    number, usual = getattr(signal, name), signal.default_int_handler if name == "SIGINT" else signal.SIG_DFL
    found = signal.signal(number, usual)  # where the tests themselves run under nohup, SIGHUP is ignored
    try:
        assert not train(run) and run.checkpoints.newest() == 3
        assert signal.getsignal(number) is usual
    finally:
        signal.signal(number, found)


def test_what_nohup_ignores_stays_ignored(data, tmp_path, monkeypatch):
    run, whole = start_run(tmp_path / "run", data, SHAPE, TrainingConfig(steps=4, batch_tokens=200)), loop.update

    def update(*arguments):
        os.kill(os.getpid(), signal.SIGHUP)
        return whole(*arguments)
    monkeypatch.setattr(loop, "update", update)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert train(run)
    finally:
        signal.signal(signal.SIGHUP, before)


# --- no home, no cell without an answer -------------------------------------------------------------------------------

def test_the_cache_of_a_user_without_a_home(monkeypatch, tmp_path):
    def homeless():
        raise RuntimeError("Could not determine home directory.")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    monkeypatch.setattr(files.tempfile, "gettempdir", lambda: str(tmp_path))
    assert cache_folder() == tmp_path / f"annotated_transformer-{os.getuid()}"


@pytest.mark.parametrize("home", [pytest.param({}, id="no HOME", marks=pytest.mark.slow),
                                  pytest.param({"HOME": "bin"}, id="a HOME that cannot be written")])
def test_a_container_without_a_user(tmp_path, home):
    """No passwd entry, a package and a working directory that cannot be written, in the latter a folder of the
    package's name, and bytecode without docstrings and assertions."""
    package = shutil.copytree(ROOT / "annotated_transformer", tmp_path / "lib" / "annotated_transformer",
                              ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "annotated_transformer").mkdir()
    (tmp_path / "text").write_text("The cow is old .\n")
    (tmp_path / "bin").mkdir()  # of the command, as a console script
    (tmp_path / "bin" / "command").write_text("from annotated_transformer.commands.cli import main; main()")
    subprocess.run(["chmod", "-R", "a-w", tmp_path], check=True)
    there = {"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(tmp_path / "lib")}
    done = subprocess.run(
        ["unshare", "-U", "--map-user=12345", "--map-group=12345", sys.executable, "-OO", "bin/command",
         "translate", "grammar", "text"], cwd=tmp_path, env=there | home, capture_output=True, text=True)
    subprocess.run(["chmod", "-R", "u+w", tmp_path], check=True)  # pytest removes it
    if "unshare" in done.stderr:
        pytest.skip(f"no other users here: {done.stderr.strip()}")
    assert (done.returncode, done.stdout) == (0, "Die Kuh ist alt.\n"), done.stderr
    assert not [*package.rglob("__pycache__"), *(tmp_path / "bin").glob(".cache")], "it could be written after all"


def test_bytecode_without_docstrings_and_assertions_has_help():
    done = subprocess.run([sys.executable, "-OO", "-m", "annotated_transformer", "train", "--help"], check=True,
                          cwd=ROOT, capture_output=True, text=True)
    assert "equation 3" in done.stdout
    for path in (ROOT / "annotated_transformer").rglob("*.py"):  # a check by `assert` would be gone
        assert not any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(path.read_text("utf-8")))), path


def test_a_folder_of_the_packages_name_is_not_taken_for_it(tmp_path):
    "A checkout that was installed to be edited is asked for names only after the working directory."
    (tmp_path / "here" / "annotated_transformer").mkdir(parents=True)
    (tmp_path / "sitecustomize.py").write_text(f"""
import sys
from importlib.machinery import PathFinder

class Checkout:
    def find_spec(name, path=None, target=None):
        if name.split(".")[0] == "annotated_transformer":
            return PathFinder.find_spec(name, ["/".join([{str(ROOT)!r}, *name.split(".")[:-1]])])

sys.meta_path.insert(sys.meta_path.index(PathFinder) + 1, Checkout)
""")
    done = subprocess.run([sys.executable, "-m", "annotated_transformer", "--version"], cwd=tmp_path / "here",
                          env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"annotated-transformer {__version__}\n"), done.stderr


def test_commands_print_into_a_cell(tmp_path, monkeypatch, capsys):
    "A notebook's streams take text, and no bytes."
    (tmp_path / "text").write_text("The cow is old .\n")
    (tmp_path / "right").write_text("Die Kuh ist alt .\n")
    cell = io.StringIO()
    monkeypatch.setattr(sys, "stdout", cell)
    monkeypatch.setattr(sys, "stdin", io.StringIO("The cow is old .\n"))
    cli.main(["translate", "grammar", str(tmp_path / "text")])
    cli.main(["score", "grammar", str(tmp_path / "text"), str(tmp_path / "right")])
    cli.main(["parse", "grammar-trees", str(tmp_path / "text")])
    first, second, third = cell.getvalue().splitlines()
    assert first == "Die Kuh ist alt." and float(second) < 0 and third.startswith("(")
    with pytest.raises(SystemExit, match="^2$"):
        cli.main(["translate", "grammar"])
    assert "standard input: there is none here, as in a notebook" in capsys.readouterr().err


def test_a_file_is_on_the_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    "Else a power cut could leave an empty file under a good name."
    synced, named, sync, replace = [], [], os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.fstat(fd).st_ino), sync(fd))[1])
    monkeypatch.setattr(Path, "replace", lambda path, to: (named.append(path.stat().st_ino in synced),
                                                           replace(path, to))[1])
    with writing(tmp_path / "x", "w") as file:
        file.write("new")
    assert named == [True]
