"""Would the tests see a fault? Forty small ones, drawn at random: python .ci/mutants.py draw | run [LIST].

`draw` prints them: file, function, the statement before and after. `run` makes each in a copy of the tree; what do the
tests of its room say? LIST is what either printed once: the same mutants, found by function and statement, or gone.
"""
import ast
import random
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

ROOT, SEED, NUMBER = Path(__file__).resolve().parent.parent, 1706, 40
PAIRS = "Lt LtE Gt GtE Eq NotEq In NotIn Is IsNot And Or Add Sub Mult Div FloorDiv Mod BitAnd BitOr".split()
OTHER = {getattr(ast, name): getattr(ast, PAIRS[i ^ 1]) for i, name in enumerate(PAIRS)}
CHANGES = [  # which nodes, which field, its other values
    (ast.Compare, "ops", lambda ops: [[*ops[:i], OTHER[type(op)](), *ops[i + 1:]] for i, op in enumerate(ops)]),
    (ast.BoolOp | ast.BinOp | ast.AugAssign, "op", lambda op: [OTHER.get(type(op), type(op))()]),
    (ast.If | ast.While | ast.IfExp, "test", lambda test: [ast.UnaryOp(ast.Not(), test)]),
    (ast.Constant, "value", lambda x: [not x if type(x) is bool else x + 1] if isinstance(x, int | float) else []),
    (ast.Return, "value", lambda value: [ast.Constant(None)] * bool(value)),
    (ast.Expr, "value", lambda value: [ast.Constant(None)] * isinstance(value, ast.Call)),
    (ast.Assign, "targets", lambda targets: [[ast.Name("_")]] * ([*map(type, targets)] == [ast.Attribute]))]
text = lambda statement: ast.unparse(statement).split(":\n")[0]  # without the statements within it
key = lambda file, function, *lines: (function.split(".")[-1], *lines)  # what a mutant keeps wherever it goes


def mutants(node, function="", line=None):
    "(function, before, after); until the next is asked for, the tree is as this one has it. Messages stay."
    line = node if isinstance(node, ast.stmt) else line
    function = f"{function}.{node.name}".strip(".") if isinstance(node, ast.FunctionDef | ast.ClassDef) else function
    for kind, field, others in CHANGES:
        for value in others(getattr(node, field)) if isinstance(node, kind) else ():
            was, before = getattr(node, field), text(line)
            setattr(node, field, value)
            yield function, before, text(line)
            setattr(node, field, was)
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            said = isinstance(child, ast.stmt) and text(child).startswith(("raise ", "if __name__ "))
            if isinstance(child, ast.AST) and not said and field not in ("annotation", "returns", "msg"):
                yield from mutants(child, function, line)


def every():
    "(tree, (file, function, before, after)) of all; experiments are left out: their records judge them."
    for path in sorted(ROOT.glob("annotated_transformer/*/*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8") if path.parent.name != "experiments" else "")
        yield from ((tree, (path.relative_to(ROOT).as_posix(), *m)) for m in mutants(tree) if m[1] != m[2])


def draw():
    "Of the statements in their order each fortieth part gives one: so every room has its share."
    found, chance = {}, random.Random(SEED)
    for _, (*place, after) in every():
        found.setdefault(tuple(place), []).append(after)
    places = [[*found][(i * len(found) + chance.randrange(len(found))) // NUMBER] for i in range(NUMBER)]
    return [(*place, chance.choice(found[place])) for place in places]


def tested(root, file, source, words, limit):
    "What the tests of the file's room say of this source, in how many seconds; those with its words come first."
    (root / file).write_text(source, encoding="utf-8")
    tests = sorted(root.glob(f"tests/{Path(file).parent.name}/test_*.py"),
                   key=lambda path: not any(word in path.read_text(encoding="utf-8") for word in words))
    command = (f"env PYTHONPATH={root} OMP_NUM_THREADS=1 timeout -s KILL {limit:.0f} "
               f"{sys.executable} -B -m pytest -x -q -p no:cacheprovider -n 0")
    begin, code = monotonic(), subprocess.run([*command.split(), *tests], cwd=root, capture_output=True).returncode
    shutil.copy(ROOT / file, root / file)
    return {0: "survived", -9: "timed out"}.get(code, "caught"), monotonic() - begin


def run(root, wanted):
    "A mutant has three times what the tests of its room take without one; past that it counts as caught."
    shutil.copytree(ROOT, root, ignore=shutil.ignore_patterns(".git", ".venv", "build", "__pycache__"))
    (root.parent / "shared").symlink_to(ROOT.parent / "shared")  # data that some tests read
    found, seconds, outcomes = {}, {}, []
    for tree, one in every():
        for mutant in wanted:  # in its own file, or where it went
            if key(*one) == key(*mutant) and (one[0] == mutant[0] or mutant not in found):
                found[mutant] = one[0], ast.unparse(tree)
    for mutant in wanted:
        outcome, took, (file, source) = "gone", 0, found.get(mutant, ("", ""))
        if file and (room := Path(file).parent.name) not in seconds:
            outcome, seconds[room] = tested(root, file, (ROOT / file).read_text(encoding="utf-8"), "", 3600)
            assert outcome == "survived", f"tests/{room} fails without a mutant"
        if file:
            outcome, took = tested(root, file, source, {Path(file).stem, key(*mutant)[0]}, 3 * seconds[room] + 60)
        print(f"{outcome:9} {took:4.0f} s {list(mutant)}", flush=True)
        outcomes.append(outcome)
    print(", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in sorted({*outcomes})))


if __name__ == "__main__":
    lines = [line[line.index("["):] for name in sys.argv[2:] for line in open(name) if "[" in line]
    wanted = [*map(tuple, map(ast.literal_eval, lines))] or draw()
    with TemporaryDirectory() as temp:
        run(Path(temp, ROOT.name), wanted) if sys.argv[1:2] == ["run"] else print(*map(list, wanted), sep="\n")
