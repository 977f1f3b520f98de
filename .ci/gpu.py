"""Runs of record on a lent GPU, in slices of ten minutes. The package itself needs none of this.

Here:   python .ci/gpu.py pack data/multi30k data/grammar        data, and wheels that the machine lacks, into .gpu/
There:  ANNOTATED_REVISION=$REVISION python3 .ci/gpu.py slice --minutes 9 --back $OUT    (with .gpu carried along; again without it, until it is done)
"""
import argparse
import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".gpu"  # travels there
OUT = ROOT / "runs/gpu"  # stays there from slice to slice, as does what is outside the checkout
SITE = Path("/tmp/site")
PIECE = 15 << 20  # a file that comes back has 16 MiB at most
LACKING = ["docstring-parser", "sacremoses"]
MPS = Path("/tmp/mps")


def pack(folders: list[Path]) -> None:
    "The folders in one archive, and the wheels."
    HOME.mkdir(exist_ok=True)
    with tarfile.open(HOME / "data.tar.xz", "w:xz") as tar:
        for folder in folders:
            tar.add(folder, folder.name)
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", HOME / "wheels", *LACKING], check=True)
    for path in HOME.rglob("*"):
        if path.is_file():
            print(f"{path.stat().st_size / 2**20:8.1f} MiB  {path.relative_to(ROOT)}")


def unpack() -> None:
    "Once on a machine: the data into data/, where the commands of the records expect them, and the wheels."
    if not SITE.exists():
        with tarfile.open(HOME / "data.tar.xz") as tar:
            tar.extractall(ROOT / "data", filter="data")
        wheels = sorted((HOME / "wheels").glob("*.whl"))
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", SITE, *wheels], check=True)


def share_the_gpu() -> None:
    """Start NVIDIA's service (MPS), through which several processes compute on a GPU at once instead of in turn.

    It changes no setting of the GPU. Where it is not to be had they take turns.
    """
    program = shutil.which("nvidia-cuda-mps-control", path=f"{os.environ['PATH']}:/usr/local/nvidia/bin")
    if program is None:
        return print("no MPS: processes take turns")
    begun, here = time.monotonic(), {"CUDA_MPS_PIPE_DIRECTORY": str(MPS), "CUDA_MPS_LOG_DIRECTORY": str(MPS)}
    if not MPS.exists():
        MPS.mkdir()
        try:
            subprocess.run([program, "-d"], env=os.environ | here, timeout=20, check=True)
            works = "import torch; print(torch.ones(9, device='cuda').sum().item())"
            subprocess.run([sys.executable, "-c", works], env=os.environ | here, timeout=60, check=True)
            (MPS / "works").touch()
        except (subprocess.SubprocessError, OSError) as error:
            print(f"MPS does not work here: {error}")
            with contextlib.suppress(subprocess.SubprocessError, OSError):
                subprocess.run([program], input="quit\n", text=True, env=os.environ | here, timeout=20)
    if (MPS / "works").exists():
        os.environ.update(here)
    print(f"MPS: {'works' if (MPS / 'works').exists() else 'no'} ({time.monotonic() - begun:.0f} s)", flush=True)


def ended(step: dict) -> bool:
    "Whether a step is over, well or badly: what fails once would fail again, and its log says why."
    if (OUT / "done" / step["name"]).exists():
        return True
    begun = OUT / "begun" / step["name"]
    return begun.exists() and not Path("/proc", begun.read_text()).exists()  # died without a word


def work(step: dict, minutes: float) -> None:
    "One step, for so many minutes at most; its output goes to a file of its own."
    _, *words = shlex.split(step["command"].format(out=OUT.relative_to(ROOT)))
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{SITE}", "TQDM_DISABLE": "1"} | step.get("environment", {})
    log, begun = OUT / f"{step['name']}.log", time.monotonic()
    with open(log, "a") as file:
        program = subprocess.Popen([sys.executable, *words], cwd=ROOT, env=environment, stdout=file, stderr=file, start_new_session=True)
        try:
            code = program.wait(60 * minutes)
        except subprocess.TimeoutExpired:
            code = "cut off"
            os.killpg(program.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):  # it saves what it has
                program.wait(20)
    print(f"{step['name']}: {time.monotonic() - begun:.0f} s, exit code {code}", *log.read_text().splitlines()[-6:], sep="\n  ", flush=True)
    (OUT / "done" / step["name"]).write_text(str(code))


def start_beside(step: dict, plan: Path, minutes: float) -> None:
    "A step that goes on from slice to slice, in a session of its own."
    if not (OUT / "begun" / step["name"]).exists():
        with open(OUT / "beside.log", "a") as log:
            process = subprocess.Popen([sys.executable, __file__, "one", step["name"], "--plan", plan, "--minutes", str(minutes)],
                                       stdout=log, stderr=log, start_new_session=True)
        (OUT / "begun" / step["name"]).write_text(str(process.pid))


def bring_back(back: Path) -> None:
    "Everything but weights, as pieces that are small enough: `cat results.tar.gz.* | tar xz` puts them together."
    with tarfile.open(SITE / "results.tar.gz", "w:gz", compresslevel=3) as tar:
        for path in sorted(OUT.rglob("*")):
            if path.is_file() and path.suffix not in (".tmp", ".safetensors") and "checkpoints" not in path.parts:
                with contextlib.suppress(FileNotFoundError):  # runs go on writing
                    tar.add(path, Path("gpu", path.relative_to(OUT)))
    whole = (SITE / "results.tar.gz").read_bytes()
    for i in range(0, len(whole), PIECE):
        (back / f"results.tar.gz.{i // PIECE}").write_bytes(whole[i : i + PIECE])


def wait_for(steps: list[dict], end: float, back: Path) -> None:
    "Until the steps are over or the time is up, bringing back what there is once a minute: the machine may be taken away."
    brought = time.monotonic()
    while not all(map(ended, steps)) and time.monotonic() < end:
        time.sleep(1)
        if time.monotonic() > brought + 60:
            bring_back(back)
            brought = time.monotonic()


def tell_progress() -> None:
    "Where the runs stand, and what the steps said last."
    for path in sorted((OUT / "runs").rglob("metrics.jsonl")):
        last = json.loads((path.read_text().splitlines() or ['{"step": 0, "seconds": 0}'])[-1])
        if not (path.parent / "record.json").exists():
            print(f"{path.parent.name}: {last['step']} updates in {last['seconds']:.0f} s", end="; ")
    print(f"\n{len(list((OUT / 'records').glob('*.json')))} records")
    for log in sorted(OUT.glob("*.log")):
        print(f"== {log.name}", *log.read_text().splitlines()[-4:], sep="\n")


def work_a_slice(plan: Path, minutes: float, back: Path) -> None:
    """Go through the plan until the minutes are over, and bring back what there is.

    Steps marked `beside` all run at once and go on between slices, those marked `alone` wait for their end.
    """
    end = time.monotonic() + 60 * minutes
    for folder in (OUT / "done", OUT / "begun", OUT / "records", OUT / "runs", back):
        folder.mkdir(parents=True, exist_ok=True)
    steps = tomllib.loads(plan.read_text())["step"]
    beside = [step for step in steps if step.get("beside")]
    unpack()
    if beside:
        share_the_gpu()
    for step in beside:
        start_beside(step, plan, 30)
    for step in (step for step in steps if step not in beside):
        if step.get("alone"):
            wait_for(beside, end, back)
            os.environ.pop("CUDA_MPS_PIPE_DIRECTORY", None)
        if time.monotonic() + 60 * step["minutes"] < end and not ended(step):
            work(step, step["minutes"])
            bring_back(back)
    wait_for(beside, end, back)
    bring_back(back)
    tell_progress()
    print("ended:", *(step["name"] for step in steps if ended(step)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack")
    packing.add_argument("folders", nargs="+", type=Path)
    one = commands.add_parser("one")
    one.add_argument("name")
    slicing = commands.add_parser("slice")
    slicing.add_argument("--back", type=Path, required=True)
    for part in (one, slicing):
        part.add_argument("--minutes", type=float, default=9)
        part.add_argument("--plan", type=Path, default=ROOT / ".ci/gpu.toml")
    given = parser.parse_args()
    if given.command == "pack":
        pack(given.folders)
    elif given.command == "one":
        work(next(step for step in tomllib.loads(given.plan.read_text())["step"] if step["name"] == given.name), given.minutes)
    else:
        work_a_slice(given.plan, given.minutes, given.back)


if __name__ == "__main__":
    main()
