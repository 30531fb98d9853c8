"""Tests the temporary files of sessions. Sessions themselves run in most other tests."""

import subprocess
import sys
from pathlib import Path

from lake.settings.settings import load_settings
from lakehouse.runtime.session import delete_scratch_of_dead, scratch

HOLD = """
import sys
from pathlib import Path
from lake.settings.settings import load_settings
from lakehouse.runtime import session

print(session._own_scratch(load_settings(home=Path(sys.argv[1]))), flush=True)
sys.stdin.readline()
"""


def test_files_of_a_killed_process_are_deleted_and_those_of_a_living_one_stay(
    tmp_path: Path,
) -> None:
    settings = load_settings(home=tmp_path)
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        folder = Path(process.stdout.readline().strip())
        (folder / "spill").write_text("of a person")
        delete_scratch_of_dead(settings)
        assert (folder / "spill").exists()
        process.kill()
    delete_scratch_of_dead(settings)
    assert [*scratch(settings).iterdir()] == []
