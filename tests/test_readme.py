"""The README: its example runs, its tables are current."""

import pathlib
import re

from experiments.readme import README, refreshed


def test_example_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.S)
    exec(compile(code, str(README), "exec"), {})
    printed = capsys.readouterr().out
    assert re.search(r"[1-9]\d* of 10 random starts", printed), printed


def test_tables_are_current():
    text = README.read_text()
    assert refreshed(text) == text
    stale = text.replace("Ghosh et al.", "Nobody et al.")
    assert refreshed(stale) == text != stale


def test_continuous_integration_runs_the_readme_commands():
    script = pathlib.Path(README.parent, ".ci", "run").read_text()
    patterns = re.findall(r"grep -m1 '(.*?)' README.md", script)
    assert len(patterns) == 2
    for pattern in patterns:
        assert re.search(pattern, README.read_text())
