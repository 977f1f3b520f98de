"""Runs of record on a lent GPU, in slices of ten minutes. The package itself needs none of this.

Here:   python .ci/gpu.py pack data/ende data/multi30k        the encoded corpora, and wheels that the machine lacks, into .gpu/
There:  ANNOTATED_REVISION=$REVISION python .ci/gpu.py slice --minutes 9 --back $OUT    (with .gpu carried along; again, until it is done)
"""
import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".gpu"
PIECE = 15 << 20  # a file that comes back has 16 MiB at most
LACKING = ["docstring-parser"]


def pack(corpora: list[Path]) -> None:
    "Of each corpus what training and scoring read: ids for training, text for the sets that are scored."
    HOME.mkdir(exist_ok=True)
    with tarfile.open(HOME / "data.tar.xz", "w:xz") as tar:
        for corpus in corpora:
            for path in sorted(corpus.iterdir()):
                if not path.name.startswith("train.") or path.suffix in (".ids", ".npy"):
                    tar.add(path, f"{corpus.name}/{path.name}")
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", HOME / "wheels", *LACKING], check=True)
    for path in HOME.rglob("*"):
        if path.is_file():
            print(f"{path.stat().st_size / 2**20:8.1f} MiB  {path.relative_to(ROOT)}")


def unpack() -> None:
    "Once on a machine: the corpora, and the wheels in a folder of their own."
    if not (HOME / "data").exists():
        with tarfile.open(HOME / "data.tar.xz") as tar:
            tar.extractall(HOME / "data.tmp", filter="data")
        for ids in (HOME / "data.tmp").glob("*/train.*.ids"):
            ids.with_suffix("").touch()  # training looks whether the text is there, and reads the ids
        (HOME / "data.tmp").rename(HOME / "data")
    wheels = sorted((HOME / "wheels").glob("*.whl"))
    if wheels and not (HOME / "site").exists():
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", HOME / "site", *wheels], check=True)


def finished(step: dict, out: Path) -> bool:
    "Whether a step has nothing left to do: it ended well, and its run, where it has one, is at its last update."
    if "run" in step:
        record = out / step["run"] / "record.json"
        return record.exists() and json.loads(record.read_text())["status"] == "finished"
    return (out / "done" / step["name"]).exists()


def work(step: dict, out: Path, minutes: float) -> None:
    "One step, for so many minutes at most; its output goes to a file of its own."
    command = step["command"].format(out=out, data=HOME / "data", minutes=f"{minutes:.1f}")
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{HOME / 'site'}", "TQDM_DISABLE": "1"}
    print(f"{step['name']}: {command}", flush=True)
    with open(out / f"{step['name']}.log", "a") as log:
        try:
            code = subprocess.run(shlex.split(command), cwd=ROOT, env=environment, stdout=log, stderr=log, timeout=60 * minutes + 45).returncode
        except subprocess.TimeoutExpired:
            code = "cut off"
    print(f"{step['name']}: exit code {code}", *(out / f"{step['name']}.log").read_text().splitlines()[-3:], sep="\n  ", flush=True)
    if "run" not in step:  # what fails once would fail again: its log says why
        (out / "done" / step["name"]).touch()


def bring_back(out: Path, back: Path) -> None:
    "Everything but checkpoints, as pieces that are small enough: `cat results.tar.gz.* | tar xz` puts them together."
    with tarfile.open(HOME / "results.tar.gz", "w:gz") as tar:
        tar.add(out, "gpu", filter=lambda info: None if "/checkpoints" in info.name else info)
    whole = (HOME / "results.tar.gz").read_bytes()
    for old in back.glob("results.tar.gz.*"):
        old.unlink()
    for i in range(0, len(whole), PIECE):
        (back / f"results.tar.gz.{i // PIECE}").write_bytes(whole[i : i + PIECE])


def work_a_slice(plan: Path, minutes: float, back: Path) -> None:
    "Go through the plan until the minutes are over, bringing back what there is after every step."
    out, end = HOME / "out", time.monotonic() + 60 * minutes
    for folder in (out / "done", out / "records", out / "runs", back):
        folder.mkdir(parents=True, exist_ok=True)
    unpack()
    for step in tomllib.loads(plan.read_text())["step"]:
        left = (end - time.monotonic()) / 60
        if left > 0.5 and not finished(step, out):
            work(step, out, left)
            bring_back(out, back)
    free = shutil.disk_usage(ROOT).free >> 30
    print("finished:", *(s["name"] for s in tomllib.loads(plan.read_text())["step"] if finished(s, out)), f"({free} GiB free)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack")
    packing.add_argument("corpora", nargs="+", type=Path)
    slicing = commands.add_parser("slice")
    slicing.add_argument("--minutes", type=float, default=9)
    slicing.add_argument("--back", type=Path, required=True)
    slicing.add_argument("--plan", type=Path, default=ROOT / ".ci/gpu.toml")
    given = parser.parse_args()
    if given.command == "pack":
        pack(given.corpora)
    else:
        work_a_slice(given.plan, given.minutes, given.back)


if __name__ == "__main__":
    main()
