"""What a configuration of the service may say; `toml_file.py` reads it.

Units stand in the key's name (`_s`, `_bytes`). Relative paths are relative to the current directory. A secret
never stands in a configuration: a key that ends in `_variable` names the environment variable that holds it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

from penrose_ray.toml_file import TomlFile, override_from_environment, override_with, validated

if TYPE_CHECKING:
    from collections.abc import Iterable

VariableName = Annotated[str, Field(pattern="^([A-Za-z_][A-Za-z0-9_]*)?$")]
"""Name of an environment variable, or empty; the pattern keeps a secret from being put here by mistake."""


class Section(BaseModel):
    """A table of a configuration file: immutable, and unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class ServiceSettings(Section):
    """The aggregation service."""

    host: str = "127.0.0.1"
    """The gateways' address."""
    port: int = Field(default=0, ge=0, le=65535)
    """0 lets the kernel choose a free port."""
    gateways: int = Field(default=1, ge=1, le=64)
    """Processes that take reports at this one address, all on this machine; more than one needs Linux."""
    shards: int = Field(default=2, ge=1, le=256)
    """Shards at the start, and the least."""
    most_shards: int = Field(default=0, ge=0, le=256)
    """Shards under load, which the scaler adds, `shards` or more; 0 means no more than `shards`."""
    scale_every_s: float = Field(default=5.0, gt=0)
    """Pause between two decisions of the scaler."""
    handover_every_s: float = Field(default=86_400.0, ge=0)
    """Period of hand-overs to the design server, from midnight UTC, with tokens from noon; 0: by hand."""
    page_port: int = Field(default=0, ge=0, le=65535)
    """Port of the live page on this machine; 0 lets the kernel choose a free one."""
    encryptors: int = Field(default=0, ge=0, le=256)
    """Actors that seal for fleets, one a core; 0 lets each fleet seal its own sample."""
    state_dir: Path
    """Journals of the matcher and the shards."""
    keys_dir: Path | None = None
    """The service's own keys, made when missing, mode 0600; empty means `keys` in `state_dir`."""
    seal_tags: bool = False
    """Clients seal what tells a report's class to this service, so that nobody on the way can read it."""
    metrics_token_file: Path | None = None
    """Bearer token of /metrics, made when missing; empty opens it if this machine alone reaches the port."""
    tpm: str = ""
    """TCTI of this machine's TPM, such as `device:/dev/tpmrm0`, whose quote clients check; empty for none."""
    most_reports_per_request: int = Field(default=1000, ge=1)
    """A request with more is refused."""
    experiment_queues: dict[str, PositiveInt] = {}
    """Queues of batch experiments with the cores of each; shards take cores from them when they must."""
    most_waiting: int = Field(default=50_000, ge=1)
    """Reports that may wait for the shards, shared among the gateways; more are asked to come back later."""
    heavy_load_s: float = Field(default=5.0, gt=0)
    """With more seconds of work waiting for a shard, only `admitted_share` of the requests is taken."""
    admitted_share: float = Field(default=0.8, gt=0, le=1)
    """Share of the requests that is taken under heavy load; the others are asked to come back later."""
    most_reports_per_s: float = Field(default=0.0, ge=0)
    """Above it, reports of frequent classes are dropped at a rate published with their sums; 0 drops none."""
    least_reports_per_s: float = Field(default=1.0, gt=0)
    """No class is brought below this rate."""
    disk_mark_bytes: int = Field(default=256 * 2**20, ge=0)
    """With less free on the journals' disk, new reports are asked to come back later."""
    archive: str = ""
    """Where `penrose compact` puts cold sums, a path or s3://bucket/folder; empty keeps them here."""
    start_timeout_s: float = Field(default=120.0, gt=0)
    """How long the actors may take to start."""
    ray_address: str = ""
    """Address of a running Ray cluster; empty starts a local one that ends with the service."""

    @model_validator(mode="after")
    def _most_is_not_less(self) -> Self:
        if 0 < self.most_shards < self.shards:
            raise ValueError(f"most_shards {self.most_shards} is less than shards {self.shards}")
        return self

    @property
    def key_file(self) -> Path:
        """The key to which tags are sealed."""
        return self._keys / "service.key"

    @property
    def ledger_key_file(self) -> Path:
        """The key that signs the ledger."""
        return self._keys / "ledger.key"

    @property
    def _keys(self) -> Path:
        return (self.keys_dir or self.state_dir / "keys").absolute()

    def absolute(self) -> Self:
        """The same with paths to secrets that do not depend on the current directory."""
        token_file = self.metrics_token_file and self.metrics_token_file.absolute()
        return self.model_copy(update={"keys_dir": self._keys, "metrics_token_file": token_file})


class LinkSettings(Section):
    """How parties are reached: token issuer, key server, gatekeepers (docs/transport.md)."""

    authorities: Path | None = None
    """For https addresses: PEM of their authorities, or of the parties; empty means this machine's."""
    allow_plain_http: bool = False
    """Take http addresses of other machines, where a VPN or a tunnel protects the way to them."""
    socks: str = ""
    """For onion addresses: HOST:PORT of a running tor."""

    def require_use(self, addresses: Iterable[str]) -> None:
        """Raise ValueError where `socks` would be used for none of these, which would see this host."""
        hosts = [urlsplit(each).hostname or "" for each in addresses if each]
        if self.socks and hosts and not any(each.endswith(".onion") for each in hosts):
            raise ValueError(f"link.socks would not be used: {', '.join(hosts)} is no onion address")

    def absolute(self) -> Self:
        """The same with a path that does not depend on the current directory."""
        return self.model_copy(update={"authorities": self.authorities and self.authorities.absolute()})


class DesignServerSettings(Section):
    """The design server: here with a key or a share, or on a machine of its own with `task_file` alone."""

    key_file: Path | None = None
    """Made by `penrose keys new`; readable by its owner only."""
    share_file: Path | None = None
    """Instead of a whole key: the design server's share, of `penrose keys deal`."""
    task_file: Path | None = None
    """The signed task, where the key that signs is not here; alone it makes a service that opens nothing."""
    gatekeepers: tuple[str, ...] = ()
    """With a share: addresses of the other parties, https://HOST:PORT, asked for their part of a release."""
    link: LinkSettings = LinkSettings()
    """`[design_server.link]`: how gatekeepers are reached."""
    passphrase_variable: VariableName = ""
    """Name of the environment variable that holds the key file's or share's passphrase; empty for none."""
    hsm_token: str = ""
    """Label of the token that wrapped the key file; PENROSE_HSM_MODULE and PENROSE_HSM_PIN open it."""
    create_key: bool = False
    """Make the key file when it is missing (a demo's convenience)."""
    releases_dir: Path
    """Hand-overs, their ledger and the privacy budget."""

    @model_validator(mode="after")
    def _one_way_to_open(self) -> Self:
        self.link.require_use(self.gatekeepers)
        shared = (self.share_file, self.task_file, self.gatekeepers)
        apart = self.task_file and not self.share_file and not self.gatekeepers
        if (all(shared) or apart) if self.key_file is None else not any(shared):
            return self
        raise ValueError(
            "give key_file, or share_file with task_file and gatekeepers, or task_file alone and open apart"
        )

    @property
    def is_here(self) -> bool:
        """Whether the service runs a design server; otherwise hand-overs are opened on another machine."""
        return bool(self.key_file or self.share_file)

    def absolute(self) -> Self:
        """The same with paths that do not depend on the current directory."""
        names = ("key_file", "share_file", "task_file", "releases_dir")
        given = {name: getattr(self, name) for name in names}
        return self.model_copy(update={name: path and path.absolute() for name, path in given.items()})


class EnrolmentSettings(Section):
    """The parties that know a client: who pays for its reports and who hides its kernel names."""

    issuer_url: str = ""
    """The token issuer, in a task that has tokens or hashes names under a key."""
    credential_variable: VariableName = ""
    """Name of the environment variable that holds the credential that the issuer gave this client."""
    tokens_file: Path | None = None
    """Where tokens outlive a restart; `penrose client` has one in its state, empty keeps them in memory."""
    name_key_file: Path | None = None
    """The name key, in a task in identity mode `keyed`; without it the issuer is asked."""
    key_server_url: str = ""
    """The key server, in a task in identity mode `oprf`."""
    key_server_credential_variable: VariableName = ""
    """Name of the environment variable that holds the key server's credential for this client."""
    link: LinkSettings = LinkSettings()
    """`[link]`: how issuer and key server are reached."""

    @model_validator(mode="after")
    def _socks_is_used(self) -> Self:
        self.link.require_use((self.issuer_url, self.key_server_url))
        return self


class ClientSettings(EnrolmentSettings):
    """One client (or several alike) of a topology."""

    kind: Literal["gpu", "replay", "fleet"]
    """`gpu` runs a program, `replay` plays a recording, `fleet` simulates clients by the ten thousand."""
    program: str = ""
    """For `gpu`: a program of penrose_ray.actors.programs."""
    gpus: float = Field(default=1.0, ge=0)
    """For `gpu` on a joined cluster: GPUs that it takes; 0 for a program that runs on CPUs, as with PoCL."""
    trace: str = ""
    """For `replay`: a trace file, or `bundled`."""
    repeat: int = Field(default=1, ge=1)
    """For `replay`: how often the trace is played."""
    launches_per_s: float = Field(default=0.0, ge=0)
    """For `replay`: pace; 0 is as fast as it goes."""
    simulation: Path | None = None
    """For `fleet`: a configuration of a simulation; its clients are shared among `count` actors."""
    sealed_one_in: int = Field(default=1000, ge=0)
    """For `fleet`: of so many consecutive clients one seals its reports for real; 0 for none, 1 for all."""
    reports_per_message: int = Field(default=1000, ge=1, le=100_000)
    """For `fleet`: reports that go to a shard together, on average."""
    seed: int = 0
    """Of the random choices of the program and the client."""
    count: int = Field(default=1, ge=1)
    """How many clients alike."""


class TorSettings(Section):
    """The gateway as onion services, through a tor of its own (docs/tor.md)."""

    home: Path
    """tor's directory; it holds the keys of the addresses."""
    instances: int = Field(default=1, ge=1, le=20)
    """How many addresses."""
    authorised: dict[str, str] = {}
    """Public keys (x25519, base32) of those who may find the service, by name; empty for everybody."""
    single_hop: bool = False
    """Half the hops, when the service's own location is no secret."""
    torrc: tuple[str, ...] = ()
    """More lines for tor's configuration."""
    start_timeout_s: float = Field(default=120.0, gt=0)
    """How long tor may take to publish the addresses."""


class TlsSettings(Section):
    """A second port of the gateway, TLS 1.3 with client certificates (docs/transport.md)."""

    host: str = "0.0.0.0"  # noqa: S104 - it asks every client for its certificate
    """Address of the second port."""
    port: int = Field(ge=1, le=65535)
    """The second port."""
    certificate: Path
    """The gateway's certificate, PEM."""
    key: Path
    """The certificate's private key, PEM."""
    clients: Path
    """Certificates of clients, or of the authority that issues them."""

    def absolute(self) -> TlsSettings:
        """The same with paths that do not depend on the current directory."""
        paths = {name: getattr(self, name).absolute() for name in ("certificate", "key", "clients")}
        return self.model_copy(update=paths)


class TransportSettings(Section):
    """Ways to the gateway besides its own port."""

    tor: TorSettings | None = None
    """`[transport.tor]`: onion services."""
    tls: TlsSettings | None = None
    """`[transport.tls]`: a second port."""

    def absolute(self) -> Self:
        """The same with paths of certificates that do not depend on the current directory."""
        return self.model_copy(update={"tls": self.tls and self.tls.absolute()})


class ExperimentSettings(Section):
    """A batch experiment that runs beside the service, with cores that its shards do not need."""

    name: str
    """What `penrose status` calls it."""
    queue: str
    """One of `service.experiment_queues`."""
    place: str = Field(pattern=r"^[\w.]+:\w+$")
    """`module:function`; a generator yields its progress, 0 to 1."""
    cores: int = Field(default=1, ge=1)
    """Logical CPUs that it takes."""
    gpus: float = Field(default=0.0, ge=0)
    """GPUs that it takes of a joined cluster."""
    arguments: dict[str, Any] = {}
    """Of the function, by name."""


class RunSettings(Section):
    """How long a run lasts and where its results go."""

    seconds: float = Field(default=30.0, gt=0)
    """How long `penrose run` collects; less where fleets and replays have sent all before."""
    out_dir: Path = Path("out")
    """Where `penrose run` writes the release, the report and the run's figures."""


class Settings(Section):
    """Everything that `penrose up` and `penrose run` need."""

    task: dict[str, Any] = {}
    """The task's draft; penrose_ray.draft makes it a Task. `design_server.task_file` must agree with it."""
    service: ServiceSettings
    design_server: DesignServerSettings
    clients: tuple[ClientSettings, ...] = ()
    """`[[clients]]`: clients that run with the service, as in a demonstration."""
    experiments: tuple[ExperimentSettings, ...] = ()
    """`[[experiments]]`: batch experiments that run beside the service."""
    policy_file: Path
    """The owner's policy that the clients of this topology obey."""
    run: RunSettings = RunSettings()
    transport: TransportSettings = TransportSettings()


def load_settings(path: Path, overrides: tuple[str, ...] = ()) -> tuple[Settings, TomlFile]:
    """Read a configuration.

    Args:
        path: the TOML file.
        overrides: texts `a.b=value`, the value in TOML (a bare word counts as a string).

    Returns:
        The settings, and the file for later messages about the task's draft.
    """
    file = TomlFile(path)
    override_from_environment(file)
    override_with(file, overrides)
    return validated(file, Settings), file
