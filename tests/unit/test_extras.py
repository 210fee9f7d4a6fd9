from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import holdfast
from holdfast.contracts.extras import DISTRIBUTION, EXTRA_OF, install_command, missing_libraries

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
BROUGHT_BY_OTHERS = {
    "aiohttp": "aiobotocore",
    "botocore": "aiobotocore",
    "bson": "pymongo",
    "cv2": "rapidocr",
    "httpx2": "google.genai",
    "omegaconf": "rapidocr",
}
"""Imports that come with another library of the same extra, by that library."""
NOT_IMPORTED = {"all", "bench", "dev", "otel"}
PROVIDERS = packages_distributions()


def required(extra):
    return {re.match(r"[\w.-]+", each)[0].lower() for each in EXTRAS[extra]}


def test_the_distribution_is_ours_and_the_command_and_the_import_keep_their_name():
    assert PROJECT["name"] == DISTRIBUTION == "holdfast-gateway"
    assert PROJECT["scripts"] == {"holdfast": "holdfast.cli:main"}
    assert Path(holdfast.__file__).parent.name == "holdfast"


def test_the_table_knows_every_extra_that_the_code_imports_from():
    assert set(EXTRA_OF.values()) == set(EXTRAS) - NOT_IMPORTED


@pytest.mark.parametrize("library", sorted(EXTRA_OF))
def test_each_library_is_brought_by_the_extra_that_the_table_names(library):
    if library in BROUGHT_BY_OTHERS:
        assert EXTRA_OF[library] == EXTRA_OF[BROUGHT_BY_OTHERS[library]]
        return
    providers = {each.lower() for each in PROVIDERS.get(library.partition(".")[0], ())}
    if not providers:
        pytest.skip(f"{library} has no wheel for this machine")
    assert providers & required(EXTRA_OF[library])


@pytest.mark.parametrize("extra", sorted(set(EXTRAS) - NOT_IMPORTED))
def test_each_library_of_an_extra_is_in_the_table(extra):
    known = {each.partition(".")[0] for each, its in EXTRA_OF.items() if its == extra}
    found = {each.lower() for name in known for each in PROVIDERS.get(name, ())}
    markers = {re.match(r"[\w.-]+", each)[0].lower() for each in EXTRAS[extra] if ";" in each}
    assert required(extra) - markers <= found


def imported_by(file: Path) -> set[str]:
    """The top-level packages that a module imports, wherever it does."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(str(node.module).partition(".")[0])
    return names


def test_every_import_of_an_optional_library_is_in_the_table():
    base = {re.match(r"[\w.-]+", each)[0].lower() for each in PROJECT["dependencies"]}
    # These come with fastapi and with pydantic.
    base |= {"starlette", "pydantic-core", "pydantic_core", "annotated-types", "typing-extensions", "click"}
    optional = set()
    for file in (ROOT / "src").rglob("*.py"):
        by_pytest = file.parts[-2:] == ("testing", "plugin.py")  # pytest itself loads it
        for name in imported_by(file) - ({"pytest"} if by_pytest else set()):
            if name in sys.stdlib_module_names or name == "holdfast":
                continue
            if not {each.lower() for each in PROVIDERS.get(name, ())} & base:
                optional.add(name)
    assert optional <= {each.partition(".")[0] for each in EXTRA_OF}


def test_one_command_installs_what_several_extras_bring(monkeypatch):
    monkeypatch.setitem(sys.modules, "aiobotocore", None)
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    missing = missing_libraries(["aiobotocore", "json", "rapidocr"])
    assert missing == ["aiobotocore", "rapidocr"]
    assert install_command(missing) == "pip install 'holdfast-gateway[aws,documents]'"


def test_a_library_inside_of_a_package_that_is_not_there_is_missing():
    assert missing_libraries(["no_such_package_here.inside"]) == ["no_such_package_here.inside"]


def test_nothing_tells_people_to_install_the_other_project():
    files = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "Makefile"]
    for folder, kinds in (("src", ("*.py",)), ("docs", ("*.md",)), ("deploy", ("*",))):
        files += [file for kind in kinds for file in (ROOT / folder).rglob(kind) if file.is_file()]
    wrong = re.compile(r"(?<![\w.-])holdfast\[|pip install (?:--\S+ )*['\"]?holdfast(?![\w-])")
    adr = "0020-the-name-of-the-distribution.md"
    found = [file.name for file in files if file.name != adr and wrong.search(file.read_text(encoding="utf-8"))]
    assert found == []
