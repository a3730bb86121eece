"""The table [pool.carbon]: a pool's power, its embodied carbon, and its grid's carbon intensity.

[pool.carbon]
cloud = "aws"                           # watts of a vCPU, and PUE, by policies.costs.coefficients
cpu = "skylake"                         # watts by the family of its processors instead
vcpus = 1                               # of a slot
idle_watts = 0.65                       # of a slot, instead of by name
max_watts = 4.26
pue = 1.2
embodied_kg = 1200                      # CO2e for the making of a server
server_slots = 64                       # that share it
lifetime_years = 4
grid = "aws:eu-west-2"                  # a yearly factor by name …
g_per_kwh = 225.0                       # … or your own: counts when nothing better is known
series = { file = "GB_2023.csv", hour = "hour_utc", value = "g_per_kwh", repeats = true }
http = { url = "https://api.carbonintensity.org.uk/intensity", value = ["data.0.intensity.actual"] }

[pool.carbon.http.forecast]             # the same source's forecast
url = "https://api.carbonintensity.org.uk/intensity/{now}/fw48h"
entries = "data"
value = "intensity.forecast"
time = "from"
"""

from dataclasses import dataclass, fields
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Final
from urllib.parse import urlsplit

from federation.address import is_local
from gateway.base.values import SettingError, check_known, count, flag, number, text_of
from policies.costs.carbon import (
    EMBODIED_G_MAX,
    INTENSITY_MAX_MG_PER_KWH,
    LIFETIME_S_MIN,
    PUE_MAX,
    SLOT_WATTS_MAX,
    Emissions,
    Intensity,
    Machine,
    mg_per_kwh,
)
from policies.costs.coefficients import CLOUDS, CPUS, GRIDS

STATIC: Final = "static"
YEAR_S: Final = 365 * 86_400
PATHS_MAX: Final = 8  # in an answer, tried in their order
STEPS_MAX: Final = 10
NOW: Final = "{now}"  # in the URL of a forecast: the time of the request
TEXT_CHARS_MAX: Final = 2_000


@dataclass(frozen=True, slots=True)
class SeriesConfig:
    """A CSV file with a row for each hour, UTC."""

    file: str
    hour: str = "hour_utc"
    value: str = "g_per_kwh"
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class ForecastConfig:
    """The same source's forecast: a list of entries, each with its time and intensity.

    `entries` is the path to the list, empty when the answer is one; `value` and `time` are paths
    within an entry. `{now}` in the URL stands for the time of asking, UTC.
    """

    url: str
    value: tuple[str, ...]
    time: str
    entries: str = ""


@dataclass(frozen=True, slots=True)
class HttpConfig:
    """A source that is asked over HTTP, and the place of the intensity in its JSON, in g/kWh.

    A path is the names and places on the way to a value, as in `data.0.intensity.actual`.
    """

    url: str
    value: tuple[str, ...]
    time: str = ""
    every_s: float = 900.0
    timeout_s: float = 10.0
    fresh_s: float = 7_200.0
    keep_s: float = 86_400.0
    key_header: str = ""
    key_file: str = ""
    key_env: str = ""
    forecast: ForecastConfig | None = None

    @property
    def host(self) -> str:
        """The host. Nothing else of the URL is ever shown: there may be a key in it."""
        return (urlsplit(self.url).hostname or "")[:100]


@dataclass(frozen=True, slots=True)
class CarbonConfig:
    """The configured facts about a pool's emissions."""

    cloud: str = ""
    cpu: str = ""
    vcpus: int = 1
    idle_watts: float | None = None
    max_watts: float | None = None
    pue: float | None = None
    embodied_kg: float = 0.0
    server_slots: int = 0
    lifetime_years: float = 4.0
    grid: str = ""
    g_per_kwh: float | None = None
    series: SeriesConfig | None = None
    http: HttpConfig | None = None

    @property
    def machine(self) -> Machine | None:
        """The power of a slot, and its share of a server; None without any watts."""
        by_name = CLOUDS[self.cloud][:2] if self.cloud else None
        by_name = CPUS[self.cpu] if self.cpu else by_name
        idle_mw, max_mw = (each * self.vcpus for each in by_name or (0, 0))
        if self.idle_watts is not None:
            idle_mw = _thousandths(self.idle_watts)
        if self.max_watts is not None:
            max_mw = _thousandths(self.max_watts)
        if by_name is None and self.max_watts is None:
            return None
        pue = CLOUDS[self.cloud][2] if self.cloud else 1_000
        return Machine(
            idle_mw=idle_mw,
            max_mw=max_mw,
            vcpus=self.vcpus,
            pue_thousandths=pue if self.pue is None else _thousandths(self.pue),
            embodied_g=_thousandths(self.embodied_kg),
            lifetime_s=round(self.lifetime_years * YEAR_S),
            server_slots=self.server_slots or 1,
        )

    @property
    def static(self) -> Intensity | None:
        """The intensity that counts when nothing better is known."""
        if self.g_per_kwh is not None:
            return Intensity(mg_per_kwh(self.g_per_kwh), STATIC)
        return Intensity(GRIDS[self.grid], f"{STATIC} {self.grid}") if self.grid else None

    @property
    def emissions(self) -> Emissions:
        """The emissions that are known before any source was asked."""
        return Emissions(self.machine, self.static)


def read_carbon(table: Any) -> CarbonConfig:
    """Read [pool.carbon]. Raises SettingError."""
    _check_table("carbon", table)
    check_known(table, (field.name for field in fields(CarbonConfig)))
    config = CarbonConfig(**{key: _read(key, value) for key, value in table.items()})
    if config.grid and config.g_per_kwh is not None:
        raise SettingError("grid and g_per_kwh: give only one of them")
    if config.series and config.http:
        raise SettingError("series and http: give only one of them")
    machine = config.machine
    if machine is None:
        for key in ("idle_watts", "pue", "vcpus", "embodied_kg"):
            if key in table:
                raise SettingError(f"{key} needs cloud, cpu or max_watts")
    elif machine.idle_mw > machine.max_mw:
        raise SettingError("idle_watts must not be more than max_watts")
    elif machine.max_mw > SLOT_WATTS_MAX * 1_000:
        raise SettingError(f"vcpus: a slot would draw more than {SLOT_WATTS_MAX:,} watts")
    if bool(config.embodied_kg) != bool(config.server_slots):
        raise SettingError("embodied_kg and server_slots: give both or neither")
    return config


def _read(key: str, value: Any) -> Any:
    match key:
        case "cloud":
            return _name(key, value, CLOUDS)
        case "cpu":
            return _name(key, value, CPUS)
        case "grid":
            return _name(key, value, GRIDS)
        case "vcpus":
            return count(key, value, 1, 1_024)
        case "server_slots":
            return count(key, value, 1, 100_000)
        case "idle_watts" | "max_watts":
            return number(key, value, 0.0, SLOT_WATTS_MAX)
        case "pue":
            return number(key, value, 1.0, PUE_MAX)
        case "embodied_kg":
            return number(key, value, 0.0, EMBODIED_G_MAX / 1_000)
        case "lifetime_years":
            return number(key, value, LIFETIME_S_MIN / YEAR_S, 50.0)
        case "g_per_kwh":
            return read_intensity(key, value)
        case "series":
            return _read_series(value)
        case _:
            return _read_http(value)


def read_intensity(key: str, value: Any) -> int | float:
    """Read an intensity in g/kWh. Raises SettingError."""
    return number(key, value, 0.0, INTENSITY_MAX_MG_PER_KWH / 1_000)


def _read_series(table: Any) -> SeriesConfig:
    _check_table("series", table)
    _check_keys("series", table, SeriesConfig)
    for key, value in table.items():
        if key == "repeats":
            flag("series: repeats", value)
        else:
            text_of(f"series: {key}", value, TEXT_CHARS_MAX, least=1)
    if "file" not in table:
        raise SettingError("series: file is missing")
    return SeriesConfig(**table)


def _read_http(table: Any) -> HttpConfig:
    _check_table("http", table)
    _check_keys("http", table, HttpConfig)
    values = dict(table)
    for key, value in table.items():
        if key == "value":
            values[key] = _paths("http", value)
        elif key == "forecast":
            values[key] = _read_forecast(value)
        elif key.endswith("_s"):
            values[key] = number(f"http: {key}", value, 0.1, 31 * 86_400.0)
        elif key == "time":
            _check_path("http", "time", value)
        else:
            text_of(f"http: {key}", value, TEXT_CHARS_MAX, least=1)
    for key in ("url", "value"):
        if key not in values:
            raise SettingError(f"http: {key} is missing")
    config = HttpConfig(**values)
    _check_http(config)
    return config


def _check_http(config: HttpConfig) -> None:
    """Check keys against each other."""
    _check_url("http", config.url, has_key=bool(config.key_header))
    if config.forecast is not None:
        asked = config.forecast.url.replace(NOW, "")
        _check_url("forecast", asked, has_key=bool(config.key_header))
        if urlsplit(asked).hostname != urlsplit(config.url).hostname:
            raise SettingError(
                "forecast: url must have the same host as that of http, because it is sent "
                "the same key"
            )
    if config.key_file and config.key_env:
        raise SettingError("http: key_file and key_env: give only one of them")
    if bool(config.key_header) != bool(config.key_file or config.key_env):
        raise SettingError("http: a key needs key_header, and one of key_file and key_env")
    if not all(each.isalnum() or each == "-" for each in config.key_header):
        raise SettingError("http: key_header must be letters, digits and dashes")
    if config.keep_s < config.fresh_s:
        raise SettingError("http: keep_s is less than fresh_s")


def _read_forecast(table: Any) -> ForecastConfig:
    _check_table("forecast", table)
    _check_keys("forecast", table, ForecastConfig)
    for key in ("url", "value", "time"):
        if key not in table:
            raise SettingError(f"forecast: {key} is missing")
    text_of("forecast: url", table["url"], TEXT_CHARS_MAX, least=1)
    _check_path("forecast", "time", table["time"])
    if table.get("entries", "") != "":
        _check_path("forecast", "entries", table["entries"])
    return ForecastConfig(**{**table, "value": _paths("forecast", table["value"])})


def _check_url(where: str, url: str, *, has_key: bool) -> None:
    # The URL itself is not repeated: there may be a key in it.
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise SettingError(f"{where}: url is malformed") from None
    if parts.scheme not in ("http", "https") or not host or not url.isascii():
        raise SettingError(f"{where}: url must be http:// or https://, and ASCII")
    if parts.username is not None or parts.password is not None:
        raise SettingError(f"{where}: url must not hold a password; use key_header")
    place = f"[{host}]" if ":" in host else host
    if has_key and parts.scheme == "http" and not is_local(f"tcp://{place}:1"):
        raise SettingError(f"{where}: url must be https://, because a key is sent")


def _paths(where: str, value: Any) -> tuple[str, ...]:
    paths = [value] if isinstance(value, str) else value
    if not isinstance(paths, list) or not 1 <= len(paths) <= PATHS_MAX:
        raise SettingError(f"{where}: value must be a path, or a list of 1 to {PATHS_MAX} of them")
    for path in paths:
        _check_path(where, "value", path)
    return tuple(paths)


def _check_path(where: str, key: str, value: Any) -> None:
    text_of(f"{where}: {key}", value, TEXT_CHARS_MAX, least=1)
    steps = value.split(".")
    if len(steps) > STEPS_MAX or not all(steps):
        raise SettingError(f"{where}: {key} must be 1 to {STEPS_MAX} steps, as in data.0.intensity")


def _name(key: str, value: Any, known: dict[str, Any]) -> str:
    if not isinstance(value, str) or value not in known:
        raise SettingError(f"{key} is {value!r}; known names: {', '.join(sorted(known))}")
    return value


def _check_table(key: str, value: Any) -> None:
    if not isinstance(value, dict):
        raise SettingError(f"{key} must be a table")


def _check_keys(key: str, table: dict[str, Any], cls: type) -> None:
    try:
        check_known(table, (field.name for field in fields(cls)))
    except SettingError as error:
        raise SettingError(f"{key}: {error}") from None


def _thousandths(value: float) -> int:
    return int((Decimal(str(value)) * 1_000).to_integral_value(ROUND_HALF_UP))
