from __future__ import annotations

import os
from pathlib import Path

import pytest

from penrose_ray.errors import ConfigError
from penrose_ray.settings import EnrolmentSettings, load_settings
from penrose_ray.toml_file import TomlFile, load_section

GOOD = """\
policy_file = "policy.toml"

[task]
name = "laptop"
rotation = [
  ["duration"],
  ["kind"]
]

[[task.counter_sets]]
name = "duration"
[[task.counter_sets.axes]]
scale = "log"
[[task.counter_sets.axes]]
scale = "linear"

[[task.counter_sets]]
name = "kind"
[[task.counter_sets.axes]]
bins = 3

[service]  # [clients]
state_dir = "state"
port = 8080

[design_server]
key_file = "keys/design.key"
releases_dir = "releases"

[[clients]]
kind = "gpu"
program = "a = [ # { no structure"

[[clients]]
kind = "replay"
trace = "bundled"
"""


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests and the developer's shell may have set some."""
    for name in list(os.environ):
        if name.startswith("PENROSE__"):
            monkeypatch.delenv(name)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "penrose.toml"


def line_with(text: str, part: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if part in line)


def error_of(path: Path, text: str, *overrides: str) -> str:
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_settings(path, overrides)
    return str(caught.value)


def test_a_file_becomes_settings_with_defaults(path: Path) -> None:
    path.write_text(GOOD)

    settings, file = load_settings(path)

    assert settings.service.port == 8080
    assert settings.service.shards == 2
    assert settings.service.state_dir == Path("state")
    assert [each.kind for each in settings.clients] == ["gpu", "replay"]
    assert settings.run.seconds == 30.0
    assert file.table["task"]["name"] == "laptop"


@pytest.mark.parametrize(
    ("old", "new", "key", "nearest"),
    [
        ("port = 8080", "prot = 8080", "service.prot", "Did you mean 'port'?"),
        ("[service]", "[servise]", "servise", "Did you mean 'service'?"),
        ('trace = "bundled"', 'tarce = "bundled"', "clients.1.tarce", "Did you mean 'trace'?"),
        ('program = "a', 'porgram = "a', "clients.0.porgram", "Did you mean 'program'?"),
        ("port = 8080", "zzz = 1", "service.zzz", "Valid keys here: "),
        ("port = 8080", '"prot" = 8080', "service.prot", "Did you mean 'port'?"),
    ],
)
def test_an_unknown_key_is_named_with_line_and_nearest_valid_one(
    path: Path, old: str, new: str, key: str, nearest: str
) -> None:
    text = GOOD.replace(old, new)

    message = error_of(path, text)

    assert f"{path}, line {line_with(text, new)}: unknown key '{key}'." in message
    assert nearest in message


def test_an_unknown_key_in_an_inline_table_is_found(path: Path) -> None:
    clients = 'clients = [\n  { kind = "gpu" },\n  { kind = "replay", tarce = "x" },\n]\n'
    text = clients + GOOD[: GOOD.index("[[clients]]")]

    assert f"{path}, line 3: unknown key 'clients.1.tarce'. Did you mean 'trace'?" in error_of(path, text)


def test_dotted_keys_are_found(path: Path) -> None:
    service = GOOD[GOOD.index("[service]") : GOOD.index("[design_server]")]
    text = 'service.prot = 1\nservice.state_dir = "state"\n' + GOOD.replace(service, "")

    assert f"line {line_with(text, 'service.prot')}: unknown key 'service.prot'" in error_of(path, text)


@pytest.mark.parametrize(
    ("old", "new", "key", "reason"),
    [
        ("port = 8080", "port = 65536", "service.port", "less than or equal to 65535"),
        ("port = 8080", 'port = "eighty"', "service.port", "integer"),
        ('kind = "replay"', 'kind = "real"', "clients.1.kind", "'replay' or 'fleet'"),
        ("port = 8080", "shards = 0", "service.shards", "greater than or equal to 1"),
    ],
)
def test_a_wrong_value_is_named_with_its_line(path: Path, old: str, new: str, key: str, reason: str) -> None:
    text = GOOD.replace(old, new)

    message = error_of(path, text)

    assert f"{path}, line {line_with(text, new)}: {key}: " in message
    assert reason in message


def test_a_missing_key_is_named_with_the_line_of_its_section(path: Path) -> None:
    text = GOOD.replace('state_dir = "state"\n', "")

    message = error_of(path, text)

    assert f"{path}, line {line_with(text, '[service]')}: service.state_dir: Field required" in message


def test_a_missing_section_is_named(path: Path) -> None:
    message = error_of(path, 'policy_file = "p"\n[task]\nname = "x"\n')

    assert f"{path}: service: Field required" in message


@pytest.mark.parametrize(
    ("location", "part"),
    [
        (("task", "rotation"), "rotation"),
        (("task", "counter_sets", 0, "name"), 'name = "duration"'),
        (("task", "counter_sets", 0, "axes", 1, "scale"), 'scale = "linear"'),
        (("task", "counter_sets", 1, "axes", 0, "bins"), "bins = 3"),
        (("service", "port"), "port = 8080"),
        (("clients", 1, "trace"), "trace ="),
        (("clients", 0), 'kind = "gpu"'),
    ],
)
def test_lines_are_found_in_nested_lists_of_tables(
    path: Path, location: tuple[str | int, ...], part: str
) -> None:
    path.write_text(GOOD)
    expected = line_with(GOOD, part) - (location == ("clients", 0))

    assert TomlFile(path).line_of(location) == expected


@pytest.mark.parametrize("location", [("task", "nothing"), ("clients", 2), ("service", "name"), ("kind",)])
def test_what_is_not_in_the_file_has_no_line(path: Path, location: tuple[str | int, ...]) -> None:
    path.write_text(GOOD)

    assert TomlFile(path).line_of(location) is None


def test_options_win_over_variables_and_variables_over_the_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_text(GOOD)
    monkeypatch.setenv("PENROSE__SERVICE__PORT", "81")
    monkeypatch.setenv("PENROSE__SERVICE__SHARDS", "5")
    monkeypatch.setenv("PENROSE__CLIENTS__1__SEED", "9")

    settings, file = load_settings(path, ("service.port=82", "task.name=desk", "run.out_dir = /tmp/a b"))

    assert (settings.service.port, settings.service.shards) == (82, 5)
    assert settings.clients[1].seed == 9
    assert settings.run.out_dir == Path("/tmp/a b")  # noqa: S108 - nothing is written
    assert file.table["task"]["name"] == "desk"


def test_an_unknown_key_from_an_option_names_the_option(path: Path) -> None:
    message = error_of(path, GOOD, "service.prot=1")

    assert "--set service.prot=1: unknown key 'service.prot'. Did you mean 'port'?" in message


def test_an_unknown_section_from_an_option_names_the_option(path: Path) -> None:
    assert "--set servce.port=1: unknown key 'servce'. Did you mean 'service'?" in error_of(
        path, GOOD, "servce.port=1"
    )


def test_an_unknown_key_from_a_variable_names_the_variable(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENROSE__CLIENTS__0__KNID", "gpu")

    assert (
        "Variable PENROSE__CLIENTS__0__KNID: unknown key 'clients.0.knid'. Did you mean 'kind'?"
        in error_of(path, GOOD)
    )


def test_a_wrong_value_from_an_option_blames_the_option_and_not_the_file(path: Path) -> None:
    message = error_of(path, GOOD, "service.port=-1")

    assert "--set service.port=-1: service.port: Input should be greater than or equal to 0" in message
    assert "line" not in message


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("service.port", "--set 'service.port' has no '='"),
        ("clients.2.seed=1", "--set clients.2.seed=1: the list has 2 entries"),
        ("clients.x=1", "the list has 2 entries"),
        ("clients.-1.seed=1", "the list has 2 entries"),
        ("service.port.number=1", "--set service.port.number=1: the name goes through a plain value"),
        ("=1", "unknown key ''"),
    ],
)
def test_an_option_that_leads_nowhere_is_refused(path: Path, override: str, reason: str) -> None:
    assert reason in error_of(path, GOOD, override)


def test_a_missing_file_is_named(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"There is no file .*penrose\.toml"):
        load_settings(path)


def test_a_directory_and_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")

    for each in (tmp_path, binary):
        with pytest.raises(ConfigError, match="cannot be read"):
            TomlFile(each)


def test_text_that_is_not_toml_is_named_with_its_line(path: Path) -> None:
    assert "is not TOML" in (message := error_of(path, "[task]\nname =\n"))
    assert "line 2" in message


def with_server(keys: str) -> str:
    return GOOD.replace('key_file = "keys/design.key"', keys)


def test_a_task_file_alone_makes_a_service_without_design_server(path: Path) -> None:
    path.write_text(with_server('task_file = "fleet.task"'))
    server = load_settings(path)[0].design_server
    assert (server.is_here, server.absolute().task_file) == (False, Path("fleet.task").absolute())
    path.write_text(GOOD)
    assert load_settings(path)[0].design_server.is_here


@pytest.mark.parametrize(
    "keys",
    [
        "",
        'share_file = "share-1.key"\ntask_file = "fleet.task"',
        'task_file = "fleet.task"\ngatekeepers = ["http://127.0.0.1:8473"]',
        'key_file = "a.key"\ntask_file = "fleet.task"',
    ],
)
def test_a_design_server_has_one_way_to_open_or_is_apart(path: Path, keys: str) -> None:
    assert "give key_file, or share_file with task_file and gatekeepers" in error_of(path, with_server(keys))


@pytest.mark.parametrize("address", ["https://10.0.0.9:8470", "http://127.0.0.1:8470"])
def test_a_tor_that_no_party_would_be_asked_over_is_refused(path: Path, address: str) -> None:
    onion = "http://" + 56 * "a" + ".onion"
    text = 'issuer_url = "{}"\nkey_server_url = "{}"\n[link]\nsocks = "127.0.0.1:9050"\n'
    path.write_text(text.format(address, onion))
    assert load_section(path, EnrolmentSettings).link.socks
    path.write_text(text.format(address, ""))
    with pytest.raises(ConfigError, match=r"link\.socks would not be used: 1"):
        load_section(path, EnrolmentSettings)
    server = f'share_file = "s.key"\ntask_file = "a.task"\ngatekeepers = ["{address}"]\n'
    server += 'link.socks = "127.0.0.1:9050"'
    assert "link.socks would not be used: 1" in error_of(path, with_server(server))
