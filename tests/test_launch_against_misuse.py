"""The launcher misused: one line that says what to do, and nothing submitted."""

import sys

import pytest
from test_launch_against_itself import launch

TEAM = ("ifca.fig3a", "--workers", "2")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["ifca.fig3a", "--workers", "0"], "`--workers` must be at least 1, got 0"),
        ([*TEAM, "--time", "-1"], "`--time` must be at least 1, got -1"),
        ([*TEAM, "--memory-gib", "0"], "`--memory-gib` must be at least 1"),
        ([*TEAM, "--partition", "a\nb"], "`--partition` must be a name"),
        ([*TEAM, "--shard", "1/2"], "`--shard` is each worker's own"),
        ([*TEAM, "--shard=1/2"], "`--shard` is each worker's own"),
        ([*TEAM, "--local", "--cpus", "2"], "`--cpus` has no use with `--local`"),
        ([*TEAM, "--local", "--partition", "a"], "`--partition` has no use with"),
        (["ifca.fig3", "--workers", "2"], "nearest: ifca.fig3d"),
        ([*TEAM, "--noise", "-1"], "`noise` must be finite and not negative"),
        ([*TEAM, "--nois", "1"], "--nois"),
        ([*TEAM, "--chunk", "0"], "`chunk` must be at least 1"),
        ([*TEAM, "--precision", "2"], "`precision` must be in (0, 1]"),
        (["clove.fig4", "--workers", "2"], "no use for clove.fig4: only trials"),
        (TEAM, "no Slurm here: `sbatch` was not found"),
    ],
)
def test_misuse_is_refused_before_anything_is_submitted(
    argv, message, tmp_path, monkeypatch
):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError) as error:
        launch(*argv, "--out", str(tmp_path / "out"))
    assert message in str(error.value) and "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["ifca.fig3a"],
        ["ifca.fig3a", "--workers", "two"],
        [*TEAM, "--preset", "full"],
        [*TEAM, "--chunk", "many"],
        [*TEAM, "--local", "--dry-run"],
    ],
)
def test_wrong_words_are_one_line(argv, capsys):
    with pytest.raises(SystemExit) as stop:
        launch(*argv)
    assert stop.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ") and err.count("\n") == 1


def test_without_submitit_it_is_said_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(ValueError, match=r"install the extra `slurm`.*pip install"):
        launch(*TEAM, "--dry-run")


def test_a_refusal_of_the_cluster_is_one_line(tmp_path, monkeypatch, capsys):
    for name in ("sbatch", "srun"):
        (tmp_path / name).write_text(
            "#!/bin/sh\necho 'no such' >&2; echo queue >&2\nexit 1\n"
        )
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(ValueError, match=r"^Slurm refuses: no such queue$"):
        launch(*TEAM, "--out", str(tmp_path / "out"))
    assert capsys.readouterr() == ("", "")
