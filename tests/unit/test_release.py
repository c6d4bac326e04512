"""What a release promises, as far as it can be seen without compiling; the rest is `./x wheel`."""

import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

import outcore
from release import lane, licences

ROOT = Path(__file__).resolve().parents[2]


def toml(name):
    return tomllib.loads((ROOT / name).read_text())


VERSION = toml("Cargo.toml")["workspace"]["package"]["version"]


def test_the_version_stands_in_one_place():
    assert re.fullmatch(r"\d+\.\d+\.\d+(-(alpha|beta|rc)\.\d+)?", VERSION), VERSION
    assert lane.version() == outcore.__version__ == VERSION
    assert "version" in toml("pyproject.toml")["project"]["dynamic"]
    for crate in toml("Cargo.toml")["workspace"]["members"]:
        assert toml(f"{crate}/Cargo.toml")["package"]["version"] == {"workspace": True}, crate
    ours = [p for p in toml("Cargo.lock")["package"] if p["name"].startswith("outcore-")]
    assert {p["version"] for p in ours} == {VERSION}


def test_the_changelog_has_this_version_or_what_comes_next():
    heads = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert heads[0] == "Unreleased" or heads[0].startswith(f"{VERSION} ")


def features(*words):
    """The lines of cargo's tree that say which features of outcore-io the module is built with."""
    command = [
        "cargo",
        "tree",
        "--locked",
        "-p",
        "outcore-py",
        "-e",
        "normal,features",
    ]
    done = subprocess.run(
        [*command, "-i", "outcore-io", *words], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_faults_are_built_in_for_tests_and_not_into_a_wheel():
    assert 'outcore-io feature "testing"' in features("--features", "testing")
    assert 'outcore-io feature "testing"' not in features()
    # maturin builds what pyproject.toml says: no features of ours, the defaults of the crate.
    assert "features" not in toml("pyproject.toml")["tool"]["maturin"]
    assert "default" not in toml("crates/py/Cargo.toml")["features"]


def test_the_module_of_this_folder_has_what_a_wheel_must_not_have():
    """The smoke test looks for this word: it must be there when faults are."""
    assert b"faulty" in next((ROOT / "python/outcore").glob("_core*.so")).read_bytes()


def test_what_is_left_out_of_the_wheel_exists():
    out = toml("pyproject.toml")["tool"]["maturin"]["exclude"]
    for path in (one["path"] for one in out if one["format"] == "wheel"):
        assert (ROOT / path).exists(), path


def test_nothing_that_is_in_the_wheel_needs_what_is_left_out():
    left_out = re.compile(r"outcore\.testing(\.| import )(oracle|strategies)\b")
    for path in (ROOT / "python").rglob("*.py"):
        if path.stem not in ("oracle", "strategies"):
            assert not left_out.search(path.read_text()), path
    for path in (ROOT / "docs").rglob("*.md"):
        assert not left_out.search(path.read_text()), path


def test_the_sdist_has_what_it_takes_to_build_and_nothing_else(tmp_path):
    command = [sys.executable, "-m", "maturin", "sdist", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (sdist,) = tmp_path.iterdir()
    lane.check_sdist(sdist)
    with tarfile.open(sdist) as archive:
        about = archive.extractfile(f"outcore-{VERSION}/PKG-INFO").read().decode()
    assert f"\nVersion: {VERSION}\n" in about and "\nRequires-Python: >=3.11\n" in about
    assert "\nRequires-Dist: numpy>=2.0\n" in about and "\nProvides-Extra: hdf5\n" in about


def test_the_licences_of_what_is_compiled_in_go_with_it():
    names = {name.split()[0] for name in licences.crates()}
    assert {"zstd-sys", "blosc-src", "rayon", "pyo3"} <= names
    assert not any(name.startswith("outcore") for name in names)
    assert licences.text() == licences.FILE.read_text(), (
        "a dependency changed: python tests/release/licences.py"
    )


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("outcore-{v}-cp311-abi3-manylinux_2_28_x86_64.whl", "is missing"),
        ("outcore-{v}-cp311-cp311-manylinux_2_28_x86_64.whl", "cp311-abi3"),
        ("outcore-{v}-cp311-abi3-linux_x86_64.whl", "manylinux_2_28"),
        ("outcore-9.9.9-cp311-abi3-manylinux_2_28_x86_64.whl", "expected version"),
    ],
)
def test_a_wheel_that_is_not_right_is_refused(tmp_path, name, problem):
    import zipfile

    path = tmp_path / name.format(v=VERSION)
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("outcore/__init__.py", "")
    with pytest.raises(lane.Bad, match=problem):
        lane.check_wheel(path, native=False)


def test_variables_that_users_are_not_told_of_are_found():
    assert lane.variables({"a": b"x OUTCORE_MEMORY OUTCORE_SECRET"}) - lane.documented() == {
        "OUTCORE_SECRET"
    }


def test_pythons_that_cannot_have_it_are_named():
    chosen, skipped = lane.pythons(["3.0"])
    assert (chosen, skipped) == ([], ["3.0: is not on this machine"])
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    chosen, skipped = lane.pythons([here])
    assert [name for name, _ in chosen] == [here] or here in " ".join(skipped)
