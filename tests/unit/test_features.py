"""The feature API: how features are found, composed, built, opened and closed, and how one that is broken is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from pydantic import Field

from holdfast import App, ConfigurationError, Workload, config, installed
from holdfast.feature import Feature, FeatureSettings, Needs, NotSetUp, Parts
from holdfast.installed import feature_lack, find_features, installed_features, lacks, require_libraries, settings_model
from holdfast.wiring import open_system
from tests.cli.commands import ENVIRONMENT
from tests.support.program import started, stop


class PagerSettings(FeatureSettings):
    pager_url: str | None = Field(None, description="Where the pager is.")
    pager_tries: int = Field(3, description="How often to try.")


class PagerFeature(Feature[PagerSettings]):
    name = "pager"
    title = "pages"
    settings = PagerSettings
    paths = ("/v1/pages",)

    def __init__(self, **parts):
        self.parts = parts

    def build(self, settings, services):
        if settings.pager_url is None:
            msg = "PAGER_URL is not set."
            raise NotSetUp(msg)
        return Parts(service=(settings.pager_url, services), **self.parts)


class Resource:
    def __init__(self, name, story, *, broken=False):
        self.name, self.story, self.broken = name, story, broken

    async def open(self):
        if self.broken:
            msg = f"{self.name} cannot be opened."
            raise ConfigurationError(msg)
        self.story.append(f"open {self.name}")

    async def close(self):
        self.story.append(f"close {self.name}")


def app_with(**parts):
    return App(features=[PagerFeature(**parts)])


def settings_of(app, folder, **values):
    return settings_model(app)(holdfast_data=folder / "data", **values)


# --- settings ---------------------------------------------------------------------------------------------------------


def test_the_settings_of_an_apps_feature_join_those_of_the_process(tmp_path):
    model = settings_model(app_with())
    loaded = config.load({"PAGER_URL": "http://here", "API_PORT": "1"}, tmp_path, model)
    assert (loaded.of(PagerSettings).pager_url, loaded.api_port) == ("http://here", 1)
    assert loaded.origin("pager_url") == "environment"
    with pytest.raises(TypeError, match="PagerSettings is not part of these settings"):
        settings_model()().of(PagerSettings)


@pytest.mark.parametrize("name", ["url", "pager_url"])
def test_a_table_has_the_settings_of_its_feature_with_and_without_its_name(tmp_path, name):
    (tmp_path / "holdfast.toml").write_text(f'pager_tries = 4\n[pager]\n{name} = "http://here"\n')
    loaded = config.load({}, tmp_path, settings_model(app_with()))
    assert (loaded.pager_url, loaded.pager_tries) == ("http://here", 4)
    assert loaded.origin("pager_url") == "holdfast.toml"
    assert config.load({"PAGER_URL": "http://there"}, tmp_path, settings_model(app_with())).pager_url == "http://there"


def test_an_unknown_name_in_a_table_is_told(tmp_path):
    (tmp_path / "holdfast.toml").write_text('[pager]\nurk = "http://here"\n')
    with pytest.raises(config.SettingsError, match="unknown key 'urk'"):
        config.load({}, tmp_path, settings_model(app_with()))


@pytest.mark.parametrize("name", ["api_port", "email_from", "courier_secrets"])
def test_two_features_cannot_have_a_setting_of_one_name(name):
    model = type("Greedy", (FeatureSettings,), {"__annotations__": {name: int}, name: 1})
    greedy = type("GreedyFeature", (PagerFeature,), {"settings": model})()
    with pytest.raises(ConfigurationError, match=f"The settings of the feature pager have {name}, and so has"):
        settings_model(App(features=[greedy]))


def test_a_feature_may_be_there_once():
    with pytest.raises(ConfigurationError, match="pager is there twice"):
        settings_model(App(features=[PagerFeature(), PagerFeature()]))


# --- building ---------------------------------------------------------------------------------------------------------


async def test_a_feature_that_is_not_set_up_says_why_and_the_others_work(tmp_path):
    app = app_with()
    async with open_system(settings_of(app, tmp_path), app) as system:
        with pytest.raises(NotSetUp, match=r"^Pages are not set up here: PAGER_URL is not set\.$"):
            system.service("pager")
        assert system.service("courier").workload.name == "courier"


async def test_services_need_the_store_only_once_the_process_has_opened_it(tmp_path):
    story = []

    class Eager(PagerFeature):
        def build(self, settings, services):
            with pytest.raises(RuntimeError, match="The store is not open yet"):
                _ = services.store
            story.append(services.clock.now())
            return super().build(settings, services)

    app = App(features=[Eager()])
    async with open_system(settings_of(app, tmp_path, pager_url="http://here"), app) as system:
        url, services = system.service("pager")
        assert (url, services.store) == ("http://here", system.store)
    assert len(story) == 1


async def test_resources_are_opened_in_order_and_closed_in_reverse(tmp_path):
    story = []
    app = app_with(resources=[Resource("a", story), Resource("b", story)])
    async with open_system(settings_of(app, tmp_path, pager_url="http://here"), app):
        assert story == ["open a", "open b"]
    assert story == ["open a", "open b", "close b", "close a"]


async def test_what_was_opened_is_closed_if_the_next_resource_cannot_be_opened(tmp_path):
    story = []
    app = app_with(resources=[Resource("a", story), Resource("b", story, broken=True)])
    with pytest.raises(ConfigurationError, match="b cannot be opened"):
        async with open_system(settings_of(app, tmp_path, pager_url="http://here"), app):
            pytest.fail("the process must not start")
    assert story == ["open a", "close a"]


async def test_two_workloads_cannot_share_a_queue(tmp_path):
    workload = type("Page", (Workload,), {"name": "page", "queue": "courier-events-main", "dead_letter_queue": "x"})()
    app = app_with(workloads=[workload])
    with pytest.raises(ConfigurationError, match="courier-events-main is used twice"):
        async with open_system(settings_of(app, tmp_path, pager_url="http://here"), app):
            pass


# --- libraries --------------------------------------------------------------------------------------------------------


class NeedyFeature(PagerFeature):
    def needs(self, settings):
        return Needs(("no_such_pager", "json"), ["PAGER_URL"] if settings.pager_url else [])

    def build(self, settings, services):
        msg = "must not be called without its libraries"
        raise AssertionError(msg)


async def test_a_feature_without_its_library_is_left_out_and_says_how_to_install_it(tmp_path):
    app = App(features=[NeedyFeature()])
    async with open_system(settings_of(app, tmp_path), app) as system:
        with pytest.raises(NotSetUp, match=r"no_such_pager not installed\. Install it: pip install no_such_pager$"):
            system.service("pager")


def test_a_setting_that_asks_for_the_feature_makes_its_library_needed(tmp_path):
    app = App(features=[NeedyFeature()])
    settings = settings_of(app, tmp_path, pager_url="http://here")
    lack = feature_lack(app.features[0], settings)
    assert lack in lacks(settings, app.features)
    with pytest.raises(ConfigurationError, match=r"PAGER_URL needs what is not installed here: no_such_pager\."):
        require_libraries(settings, app.features)


# --- features that other packages announce ----------------------------------------------------------------------------


@pytest.fixture
def announced(monkeypatch):
    """A function that announces one more feature, as an installed package does."""
    points = list(installed.entry_points(group=installed.GROUP))

    def announce(name, load):
        point = SimpleNamespace(name=name, value=f"somewhere:{name}", dist=SimpleNamespace(name="a-package"), load=load)
        monkeypatch.setattr(installed, "entry_points", lambda group: [*points, point])
        find_features.cache_clear()

    yield announce
    find_features.cache_clear()


def test_a_copy_of_the_files_that_nobody_installed_has_our_features(monkeypatch):
    registered = {point.name: point.value for point in installed.entry_points(group=installed.GROUP)}
    monkeypatch.setattr(installed, "entry_points", lambda group: [])
    find_features.cache_clear()
    try:
        assert [each.name for each in find_features().features] == ["courier", "documents", "email"]
    finally:
        find_features.cache_clear()
    assert registered.items() >= installed._OURS.items(), "pyproject.toml says the same"


def test_an_announced_feature_is_found(announced):
    announced("pager", lambda: PagerFeature)
    assert [each.name for each in installed_features()] == ["courier", "documents", "email", "pager"]
    assert "pager_url" in settings_model().model_fields


def test_a_feature_that_cannot_be_loaded_does_not_hide_the_others(announced):
    def fail():
        msg = "no module named pagers, token=s3cr3t-9f8e7d6c"
        raise ImportError(msg)

    announced("pager", fail)
    found = find_features()
    assert [each.name for each in found.features] == ["courier", "documents", "email"]
    assert len(found.problems) == 1
    with pytest.raises(ConfigurationError) as raised:
        installed_features()
    assert "The feature pager (a-package) cannot be imported: ImportError: no module" in raised.value.message
    assert "s3cr3t" not in raised.value.message


@pytest.mark.parametrize("what", [PagerSettings, "PagerFeature", None])
def test_only_a_feature_can_be_announced(announced, what):
    announced("pager", lambda: what)
    with pytest.raises(ConfigurationError, match=r"somewhere:pager is not a subclass of holdfast\.feature\.Feature"):
        installed_features()


# --- the program ------------------------------------------------------------------------------------------------------


def run(folder, *arguments, **more):
    environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": str(folder), "API_PORT": "0", **more}
    return subprocess.run(
        [sys.executable, "-m", "holdfast", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def checks_of(done):
    return {each["check"]: each for each in json.loads(done.stdout)["checks"]}


def test_the_program_names_a_package_whose_feature_cannot_be_imported(tmp_path):
    about = tmp_path / "broken-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[holdfast.features]\npager = nowhere.feature:PagerFeature\n")
    problem = "The feature pager (broken) cannot be imported: ModuleNotFoundError: No module named 'nowhere'"
    helped = run(tmp_path, "--help")
    assert helped.returncode == 0
    assert "emails" in helped.stdout
    assert f"Warning: {problem}" in helped.stderr
    refused = run(tmp_path, "config", "show")
    assert (refused.returncode, refused.stderr) == (2, f"Error: {problem}\n")
    done = run(tmp_path, "doctor", "--json")
    assert done.returncode == 1
    assert (checks_of(done)["features"]["verdict"], checks_of(done)["features"]["message"]) == ("FAIL", problem)


OWN = """
from pydantic import Field
from holdfast import App
from holdfast.feature import WARN, Feature, FeatureSettings, Finding, Parts
from holdfast.http import FeatureRoutes, Routes

class EchoSettings(FeatureSettings):
    echo_word: str = Field("nothing", description="What to say.")

class EchoFeature(Feature[EchoSettings]):
    name = "echo"
    title = "echoes"
    settings = EchoSettings

    def build(self, settings, services):
        def routes(frame):
            routes = Routes("echo", "Echoes.")
            @routes.get("/v1/echo", dependencies=[frame.operators_only()])
            async def echo() -> str:
                return settings.echo_word
            return FeatureRoutes([routes])
        return Parts(routes=routes)

    async def check(self, settings, services):
        if settings.echo_word == "broken":
            raise OSError("no way")
        return [Finding("echo", WARN, f"It says {settings.echo_word}.")]

app = App(features=[EchoFeature()])
"""


def test_up_and_doctor_have_the_features_of_the_app(tmp_path):
    import httpx

    (tmp_path / "own_echo.py").write_text(OWN)
    environment = {**ENVIRONMENT, "PYTHONPATH": str(tmp_path), "API_PORT": "0", "ECHO_WORD": "hello"}
    with started(tmp_path, environment, "up", "--json", "--app", "own_echo:app") as server:
        assert server.first_line, server.log.read_text()
        address = f"{server.address}/v1/echo"
        assert httpx.get(address, trust_env=False).status_code == 401
        token = {"authorization": f"Bearer {ENVIRONMENT['OPERATOR_TOKEN']}"}
        assert httpx.get(address, headers=token, trust_env=False).json() == "hello"
        stop(server)
    (tmp_path / "holdfast.toml").write_text('[echo]\nword = "broken"\n')
    found = checks_of(run(tmp_path, "doctor", "--json", "--app", "own_echo:app"))
    assert found["config"]["verdict"] == "OK"
    assert (found["echo"]["verdict"], found["echo"]["message"]) == ("FAIL", "Its check failed: OSError: no way")


def test_holdfast_app_is_the_app_of_every_command(tmp_path):
    (tmp_path / "own_echo.py").write_text(
        OWN.replace('title = "echoes"', 'title = "echoes"\n    scopes = {"echo:hear": ""}')
    )
    (tmp_path / "holdfast.toml").write_text('[echo]\nword = "hello"\n')
    unknown = run(tmp_path, "config", "show")
    assert (unknown.returncode, "unknown key 'echo'" in unknown.stderr) == (2, True)
    shown = run(tmp_path, "config", "show", "--json", HOLDFAST_APP="own_echo:app")
    assert {"ECHO_WORD": "hello"}.items() <= {each["name"]: each["value"] for each in json.loads(shown.stdout)}.items()
    assert run(tmp_path, "migrate", HOLDFAST_APP="own_echo:app").returncode == 0
    assert run(tmp_path, "tenants", "add", "acme", HOLDFAST_APP="own_echo:app").returncode == 0
    made = run(tmp_path, "keys", "create", "acme", "--scope", "echo:hear", HOLDFAST_APP="own_echo:app")
    assert made.returncode == 0, made.stderr
    broken = run(tmp_path, "config", "show", HOLDFAST_APP="own_echo:nothing")
    assert (broken.returncode, broken.stderr) == (
        2,
        "Error: HOLDFAST_APP=own_echo:nothing: the module 'own_echo' has no 'nothing'.\n",
    )
