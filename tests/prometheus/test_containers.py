import json
import re
import shlex
import tomllib
from fnmatch import fnmatch
from typing import Any

import pytest
import typer.main
import yaml
from prometheus.programs import FILES, REPOSITORY

import gradwatch
from gradwatch.cli.app import app

COMPOSE: dict[str, Any] = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = re.sub(r"\\\n\s*", "", (REPOSITORY / "Dockerfile").read_text(encoding="utf-8"))
each_service = pytest.mark.parametrize("name", SERVICES)


def instructions(word: str) -> list[str]:
    return re.findall(rf"^{word} +(.*)$", DOCKERFILE, re.MULTILINE)


def mounts(service: dict[str, Any]) -> dict[str, str]:
    """What is mounted, by where."""
    return {where: what for what, where in (one.split(":")[:2] for one in service["volumes"])}


def option(service: dict[str, Any], name: str) -> str:
    return next(one.partition("=")[2] for one in service["command"] if one.startswith(f"--{name}="))


def test_there_are_a_collector_a_prometheus_and_an_alertmanager() -> None:
    assert set(SERVICES) == {"collector", "prometheus", "alertmanager"}


@each_service
def test_every_image_is_pinned_to_a_version(name: str) -> None:
    assert re.search(r":v?\d+\.\d+\.\d+(-[\w.-]+)?$", SERVICES[name]["image"])


def test_the_images_that_ours_is_built_on_are_pinned() -> None:
    assert instructions("FROM")
    assert all(re.match(r"[\w/]+:\d+\.\d+\.\d+-", one) for one in instructions("FROM"))


def test_our_image_bears_our_version() -> None:
    assert SERVICES["collector"]["image"] == f"gradwatch:{gradwatch.__version__}"


@each_service
def test_every_service_says_whether_it_is_healthy(name: str) -> None:
    check = SERVICES[name]["healthcheck"]
    assert check["test"][0] == "CMD"
    assert {"interval", "timeout", "start_period", "retries"} <= check.keys()


@each_service
def test_every_port_is_published_on_this_machine_alone(name: str) -> None:
    assert SERVICES[name]["ports"]
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[name]["ports"])


@each_service
def test_no_service_may_gain_privileges(name: str) -> None:
    assert SERVICES[name]["cap_drop"] == ["ALL"]
    assert SERVICES[name]["security_opt"] == ["no-new-privileges:true"]
    assert not SERVICES[name].get("privileged")


def test_the_collector_runs_as_nobody_special_on_a_root_that_it_cannot_write() -> None:
    assert instructions("USER") == ["gradwatch"]
    assert SERVICES["collector"]["read_only"] is True
    assert "user" not in SERVICES["collector"]


def test_there_is_no_default_password() -> None:
    assert SERVICES["collector"]["environment"]["GRADWATCH_API_KEY"].startswith("${GRADWATCH_API_KEY:?")
    assert COMPOSE["secrets"] == {"gradwatch_api_key": {"environment": "GRADWATCH_API_KEY"}}
    for service in SERVICES.values():
        for name, value in service.get("environment", {}).items():
            if re.search("key|password|secret|token", name, re.IGNORECASE):
                assert re.fullmatch(r"\$\{\w+:\?[^}]+\}", value)


@each_service
def test_what_is_mounted_exists(name: str) -> None:
    for what in mounts(SERVICES[name]).values():
        assert (REPOSITORY / what).is_file() if what.startswith(".") else what in COMPOSE["volumes"]


@pytest.mark.parametrize("name", ["prometheus", "alertmanager"])
def test_a_service_reads_the_configuration_that_is_mounted(name: str) -> None:
    assert mounts(SERVICES[name])[option(SERVICES[name], "config.file")] == f"./dashboards/prometheus/compose/{name}.yml"


def test_prometheus_finds_collector_alertmanager_rules_and_key() -> None:
    configuration = yaml.safe_load((FILES / "compose" / "prometheus.yml").read_text(encoding="utf-8"))
    scrape = configuration["scrape_configs"][0]
    assert scrape["static_configs"][0]["targets"] == [f"collector:{instructions('EXPOSE')[0]}"]
    assert configuration["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"] == ["alertmanager:9093"]
    assert [f"/etc/prometheus/{one}" for one in configuration["rule_files"]] == ["/etc/prometheus/rules.yml"]
    assert mounts(SERVICES["prometheus"])["/etc/prometheus/rules.yml"] == "./dashboards/prometheus/rules.yml"
    assert scrape["authorization"]["credentials_file"] == f"/run/secrets/{SERVICES['prometheus']['secrets'][0]}"


def test_alertmanager_finds_the_webhooks_address() -> None:
    configuration = yaml.safe_load((FILES / "compose" / "alertmanager.yml").read_text(encoding="utf-8"))
    files = {hook["url_file"] for one in configuration["receivers"] for hook in one.get("webhook_configs", ())}
    given = SERVICES["alertmanager"]["configs"]
    assert files == {one["target"] for one in given}
    assert {one["source"] for one in given} == set(COMPOSE["configs"])


def test_what_is_copied_into_the_image_exists_and_is_not_ignored() -> None:
    kept = [line[1:] for line in (REPOSITORY / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    sources = [name for one in instructions("COPY") if "--from" not in one for name in shlex.split(one)[:-1]]
    assert sources
    assert all((REPOSITORY / name).exists() for name in sources)
    assert sorted(sources) == sorted(kept)


def test_the_image_has_every_package_of_the_wheel() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    copied = [shlex.split(one) for one in instructions("COPY")]
    assert all([name, name] in copied for name in packages)
    assert not [name for name in copied if fnmatch(name[0], "tests*")]


def test_the_container_starts_a_command_that_there_is_on_the_port_that_is_published() -> None:
    assert json.loads(instructions("ENTRYPOINT")[0]) == ["gradwatch"]
    command, *arguments = json.loads(instructions("CMD")[-1])
    group: Any = typer.main.get_command(app)
    given = group.commands[command].make_context(command, arguments).params
    assert (given["host"], str(given["data"])) == ("0.0.0.0", "/data")
    assert SERVICES["collector"]["ports"] == [f"127.0.0.1:{given['port']}:{given['port']}"]
    assert instructions("EXPOSE") == [str(given["port"])]
    assert mounts(SERVICES["collector"]) == {"/data": "data"}


def test_image_and_service_ask_the_same_for_health() -> None:
    in_image = json.loads(re.search(r"HEALTHCHECK .*?CMD (\[.*\])", DOCKERFILE)[1])
    assert SERVICES["collector"]["healthcheck"]["test"] == ["CMD", *in_image]
    assert "/healthz" in in_image[-1]


@pytest.mark.parametrize("word", ["latest", "changeme", "admin", "password"])
def test_nothing_is_left_to_chance_or_to_be_changed(word: str) -> None:
    assert word not in (REPOSITORY / "docker-compose.yml").read_text(encoding="utf-8").lower()
