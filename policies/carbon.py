"""What work emits: energy, carbon, and its share of the making of the hardware. Pure, exact.

After the Software Carbon Intensity specification (Green Software Foundation, SCI 1.1):

    E = W·t·PUE, W = idle + u·(max - idle)     u is CPU time over slot time, at most 1
    O = E·I                                    I is of the place (location-based), not of contracts
    M = TE·(TiR/EL)·(RR/ToR)                   the share of a server's making, by time and by slots

Everything is an integer: microjoules, nanograms of CO2e, milligrams a kilowatt-hour. Each figure
of a run is worked out as a fraction and rounded once, to the nearest, halves up; parts of a run
are shares of that, and add up to it exactly (`Footprint.split`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Final

from federation.adverts import Outlook

COUNT_MAX: Final = 2**63 - 1  # where figures end, in the books as on the wire
# Dirtier than any power station; who says more has mistaken the unit, or lies.
INTENSITY_MAX_MG_PER_KWH: Final = 5_000_000
# Of one slot, be it a whole machine full of GPUs, with its building; and what it may have taken
# to make, each second of its life.
SLOT_WATTS_MAX: Final = 20_000
PUE_MAX: Final = 5
EMBODIED_G_MAX: Final = 10**8
LIFETIME_S_MIN: Final = 180 * 86_400
SOURCE_CHARS_MAX: Final = 400


@dataclass(frozen=True, slots=True)
class Machine:
    """What is known of the hardware of a pool, and of its building.

    Attributes:
        idle_mw: milliwatts of a slot that does nothing; `max_mw` of one that computes.
        vcpus: of a slot; it draws `max_mw` when all of them compute.
        pue_thousandths: what the building draws over what its computers do, in thousandths.
        embodied_g: grams of CO2e for the making of a server (TE); 0: not counted.
        lifetime_s: how long a server is used (EL).
        server_slots: that share it (ToR, of which a slot is RR = 1).
    """

    idle_mw: int
    max_mw: int
    vcpus: int = 1
    pue_thousandths: int = 1_000
    embodied_g: int = 0
    lifetime_s: int = 4 * 365 * 86_400
    server_slots: int = 1

    @property
    def busy_watts(self) -> float:
        """What a slot that computes draws, with its share of the building."""
        return self.max_mw * self.pue_thousandths / 1e6


@dataclass(frozen=True, slots=True)
class Intensity:
    """CO2e of a kilowatt-hour now, and who says so."""

    mg_per_kwh: int
    source: str


@dataclass(frozen=True, slots=True)
class Emissions:
    """What is known of a pool: what it draws, what its electricity emits now, and in hours to come.

    What is booked goes by `intensity` alone.
    """

    machine: Machine | None = None
    intensity: Intensity | None = None
    ahead: Outlook | None = None


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a run emitted. Without a source its carbon is not zero, but unknown.

    Attributes:
        energy_uj: microjoules, of the hardware and the building.
        carbon_ng: nanograms of CO2e for that energy; `embodied_ng` for the making of the hardware.
        intensity_mg_per_kwh: by which `carbon_ng` was worked out.
        source: where that came from.
    """

    energy_uj: int = 0
    carbon_ng: int = 0
    embodied_ng: int = 0
    intensity_mg_per_kwh: int = 0
    source: str = ""

    def split(self, weights: Sequence[int]) -> "list[Footprint]":
        """Parts in proportion to weights, not all of them zero, that add up to this exactly.

        Each part is rounded down, and the last has what is left.
        """
        if len(weights) == 1:
            return [self]
        energy = _shares(self.energy_uj, weights)
        carbon = _shares(self.carbon_ng, weights)
        embodied = _shares(self.embodied_ng, weights)
        return [
            Footprint(*figures, self.intensity_mg_per_kwh, self.source)
            for figures in zip(energy, carbon, embodied, strict=True)
        ]

    def as_told_by(self, site: str) -> "Footprint":
        """The same, marked as another site's word."""
        source = f"{site} says: {self.source}"[:SOURCE_CHARS_MAX] if self.source else ""
        return Footprint(
            self.energy_uj, self.carbon_ng, self.embodied_ng, self.intensity_mg_per_kwh, source
        )


NOTHING_KNOWN: Final = Footprint()


def mg_per_kwh(grams: float | str) -> int:
    """Return an intensity in g/kWh as we count it; ValueError when it can't be one."""
    try:
        exact = Decimal(str(grams))
    except InvalidOperation:
        raise ValueError("no number") from None
    most = INTENSITY_MAX_MG_PER_KWH // 1_000
    if not exact.is_finite() or not 0 <= exact <= most:
        raise ValueError(f"{str(exact)[:20]} g/kWh: it must be 0 to {most:,}")
    return int((exact * 1_000).to_integral_value(ROUND_HALF_UP))


def energy_uj(machine: Machine, wall_ns: int, cpu_ns: int) -> int:
    """Return what so much slot time took, of which CPUs were busy for `cpu_ns`."""
    full_ns = wall_ns * machine.vcpus
    above_mw = machine.max_mw - machine.idle_mw
    # Milliwatts by nanoseconds are a millionth of a microjoule.
    draw = machine.idle_mw * full_ns + above_mw * min(cpu_ns, full_ns)
    return _divided(draw * machine.pue_thousandths, machine.vcpus * 10**9)


def carbon_ng(energy_uj: int, mg_per_kwh: int) -> int:
    """Return O = E·I. A kilowatt-hour is 3.6e12 microjoules, a milligram 1e6 nanograms."""
    return _divided(energy_uj * mg_per_kwh, 3_600_000)


def embodied_ng(machine: Machine, wall_ns: int) -> int:
    """Return M = TE·(TiR/EL)·(RR/ToR) of so much slot time."""
    return _divided(machine.embodied_g * wall_ns, machine.lifetime_s * machine.server_slots)


def footprint(emissions: Emissions | None, wall_ns: int, cpu_ns: int) -> Footprint:
    """Return what so much time in a pool's slots emitted, as far as that is known."""
    if emissions is None or emissions.machine is None:
        return NOTHING_KNOWN
    machine, intensity = emissions.machine, emissions.intensity
    energy, embodied = energy_uj(machine, wall_ns, cpu_ns), embodied_ng(machine, wall_ns)
    if intensity is None:
        return Footprint(energy, 0, embodied)
    carbon = carbon_ng(energy, intensity.mg_per_kwh)
    return Footprint(energy, carbon, embodied, intensity.mg_per_kwh, intensity.source)


def objection(found: Footprint, wall_ns: int) -> str:
    """Why what somebody says that so much slot time emitted can't be; empty when it can."""
    if found.intensity_mg_per_kwh > INTENSITY_MAX_MG_PER_KWH:
        return "its electricity would be dirtier than any"
    if found.energy_uj * 1_000 > wall_ns * SLOT_WATTS_MAX * PUE_MAX + 1_000:
        return "more energy than slots could draw in that time"
    if found.embodied_ng * LIFETIME_S_MIN > wall_ns * EMBODIED_G_MAX + LIFETIME_S_MIN:
        return "a share of hardware that nobody could have made"
    # One more or less, as not everybody rounds as we do.
    if abs(found.carbon_ng - carbon_ng(found.energy_uj, found.intensity_mg_per_kwh)) > 1:
        return "its carbon is not its energy times its intensity"
    if not found.source and found.intensity_mg_per_kwh:
        return "an intensity of no source"
    if len(found.source) > SOURCE_CHARS_MAX or not found.source.isprintable():
        return f"its source must be at most {SOURCE_CHARS_MAX} printable characters"
    return ""


def _divided(above: int, below: int) -> int:
    return min((2 * above + below) // (2 * below), COUNT_MAX)


def _shares(whole: int, weights: Sequence[int]) -> list[int]:
    shares, left, weight_left = [], whole, sum(weights)
    for weight in weights:
        share = left * weight // weight_left if weight_left else left
        shares.append(share)
        left, weight_left = left - share, weight_left - weight
    return shares
