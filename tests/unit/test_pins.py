"""Pin files: the real one, and every way to break one."""

from pathlib import Path

import pytest

from lab.errors import InputError
from lab.pins import get_pin, load_pins

GOOD = """
[f1793c1c4]
commit = "f1793c1c4e586022efa0b1d3aa6e30ccd67f4e2d"
build = "b10699..b10705"
role = "affected"
about = "#28047 reported here"
sdist = { build = 10705, why = "the nearest above" }
"""


def test_the_projects_pins_load() -> None:
    pins = load_pins()
    stand_ins = {pin.id: pin.sdist.build for pin in pins.values() if pin.sdist}
    assert (
        stand_ins
        | {
            "049326a00": 9951,
            "3653e6d6d": 10326,
            "74ce15741": 10338,
            "f1793c1c4": 10705,
            "1548a240e": 10816,
        }
        == stand_ins
    )


def test_a_pin_named_by_a_build_needs_no_more(tmp_path: Path) -> None:
    text = '[b10724]\nrole = "fixed"\nabout = "carries #26500"\n'
    pin = load_pins(_file(tmp_path, text))["b10724"]
    assert (pin.commit, pin.build) == ("b10724", "b10724")
    assert pin.sdist
    assert (pin.sdist.build, pin.sdist.why) == (10724, "the same build")


def test_a_pin_keeps_what_the_file_says(tmp_path: Path) -> None:
    pin = load_pins(_file(tmp_path, GOOD))["f1793c1c4"]
    assert pin.id == "f1793c1c4"
    assert pin.build == "b10699..b10705"
    assert not pin.used


def test_an_unknown_pin_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"unknown pin 'f1793c1c5' \(did you mean 'f1793c1c4'\?\)"):
        get_pin("f1793c1c5", _file(tmp_path, GOOD))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('role = "affected"', 'rule = "affected"', r"rule: unknown key 'rule' \(did you mean"),
        ('role = "affected"\n', "", "role: required, but missing"),
        (
            '"affected"',
            '"broken"',
            "role: input should be 'affected', 'fixed' or 'unknown', not 'broken'",
        ),
        ("f1793c1c4e5860", "f1793c1c4E5860", "commit: string should match pattern"),
        ("f1793c1c4e586022efa0b1d3aa6e30ccd67f4e2d", "f1793c", "commit: string should match"),
        ('commit = "f', 'commit = "0', "does not begin with the pin's id f1793c1c4"),
        ("[f1793c1c4]", "[master]", "id: string should match pattern"),
        ("[f1793c1c4]", "[b1070555]", "id: string should match pattern"),
        ("b10699..b10705", "10705", "build: string should match pattern"),
        ("b10699..b10705", "b10705..b10699", "ends before it begins"),
        ("build = 10705", 'build = "10705"', "sdist.build: input should be a valid integer"),
        ("build = 10705", "build = -1", "sdist.build: input should be greater than 0"),
        (', why = "the nearest above"', "", "sdist.why: required, but missing"),
        ("sdist = {", "sdist = { hash = 1,", "sdist.hash: unknown key 'hash'; allowed: build, why"),
        ("[f1793c1c4]", "x = 1\n[f1793c1c4]", "a pin is a table"),
        ("role =", 'id = "f1793c1c4"\nrole =', "id: is the table's name"),
        (GOOD, GOOD + GOOD, "not valid TOML"),
        ("[f1793c1c4]", "[f1793c1c4", "not valid TOML"),
    ],
)
def test_a_broken_pin_file_says_where_and_what(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert old in GOOD
    file = _file(tmp_path, GOOD.replace(old, new))
    with pytest.raises(InputError, match=message) as caught:
        load_pins(file)
    assert str(file) in str(caught.value)


def test_a_missing_file_names_its_neighbours(tmp_path: Path) -> None:
    _file(tmp_path, GOOD)
    with pytest.raises(InputError, match="no such file") as caught:
        load_pins(tmp_path / "pin.toml")
    assert "pins.toml" in str(caught.value)


def _file(folder: Path, text: str) -> Path:
    path = folder / "pins.toml"
    path.write_text(text)
    return path


def test_pins_are_frozen(tmp_path: Path) -> None:
    pin = load_pins(_file(tmp_path, GOOD))["f1793c1c4"]
    with pytest.raises(ValueError, match="frozen"):
        pin.role = "fixed"  # type: ignore[misc]
