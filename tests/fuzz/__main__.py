"""`python -m tests.fuzz [TARGET ...] [--seconds N]`: fuzz each target for so long, keeping what reaches new code.

New inputs go into `tests/fuzz/inputs/TARGET.hex`, ready to be committed; an input that breaks something is written to
`tests/fuzz/found/TARGET-HASH`, and the exit code is 1. Needs atheris (`pip install -e '.[fuzz]'`).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
MAX_INPUT_BYTES = 2_048


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    if "--child" in sys.argv:  # before anything of ours is imported: it is instrumented as it is
        return fuzz(sys.argv[1], int(sys.argv[2]), sys.argv[3])
    from tests.fuzz.targets import TARGETS

    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"one of {', '.join(TARGETS)}; default: all")
    parser.add_argument("--seconds", type=int, default=60, help="how long to fuzz each target (default: 60)")
    arguments = parser.parse_args()
    unknown = set(arguments.targets) - set(TARGETS)
    if unknown:
        parser.error(f"unknown target {', '.join(sorted(unknown))}: choose from {', '.join(TARGETS)}")
    failed = [name for name in arguments.targets or TARGETS if not run(name, arguments.seconds)]
    if failed:
        print(f"broken: {', '.join(failed)}; the inputs are in {HERE / 'found'}", file=sys.stderr)
    return 1 if failed else 0


def run(name: str, seconds: int) -> bool:
    """Fuzz one target in a process of its own, which libFuzzer ends; whether all inputs passed."""
    from tests.fuzz.corpus import inputs_of, keep

    print(f"fuzzing {name} for {seconds} s", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder)
        for number, data in enumerate(inputs_of(name)):
            (corpus / str(number)).write_bytes(data)
        command = [sys.executable, "-m", "tests.fuzz", name, str(seconds), folder, "--child"]
        code = subprocess.run(command, check=False).returncode
        keep(name, [path.read_bytes() for path in corpus.iterdir()])
    return code == 0


def fuzz(name: str, seconds: int, corpus: str) -> int:
    try:
        import atheris
    except ImportError:
        print("fuzzing needs atheris: pip install -e '.[fuzz]'", file=sys.stderr)
        return 2
    found = HERE / "found"
    found.mkdir(exist_ok=True)
    with atheris.instrument_imports(include=["dcp", "dht", "peer", "xmlswitch"]):
        from tests.fuzz.targets import TARGETS
    atheris.Setup(
        [
            sys.argv[0],
            corpus,
            f"-max_total_time={seconds}",
            f"-max_len={MAX_INPUT_BYTES}",
            f"-artifact_prefix={found / name}-",
            "-timeout=5",  # seconds for one input: everything here is bounded far below
            "-rss_limit_mb=1024",
            "-print_final_stats=1",
        ],
        TARGETS[name],
    )
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
