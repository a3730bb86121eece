"""Emissions of work: energy, carbon, and a share of the making of the hardware. Pure, exact.

After the Software Carbon Intensity specification (Green Software Foundation, SCI 1.1):

    E = W·t·PUE, W = idle + u·(max - idle)     u is CPU time over slot time, at most 1
    O = E·I                                    I is of the place (location-based), not of contracts
    M = TE·(TiR/EL)·(RR/ToR)                   the share of a server's making, by time and by slots

Everything is an integer: microjoules, nanograms of CO2e, milligrams a kilowatt-hour. Each figure of
a run is computed as a fraction and rounded once, to the nearest, halves up. The parts of a run are
shares of that figure, and add up to it exactly (`Footprint.split`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Final

from federation.messages.adverts import Outlook

COUNT_MAX: Final = 2**63 - 1  # the maximum of a figure, in the books and on the wire
# Dirtier than any power station: a higher figure is a wrong unit, or a lie.
INTENSITY_MAX_MG_PER_KWH: Final = 5_000_000
# Of one slot, even a whole machine full of GPUs, with its building; and the most that making it may
# have emitted, and the least lifetime over which that is spread.
SLOT_WATTS_MAX: Final = 20_000
PUE_MAX: Final = 5
EMBODIED_G_MAX: Final = 10**8
LIFETIME_S_MIN: Final = 180 * 86_400
SOURCE_CHARS_MAX: Final = 400


@dataclass(frozen=True, slots=True)
class Machine:
    """The known properties of a pool's hardware and building.

    Attributes:
        idle_mw: milliwatts of an idle slot; `max_mw` of a computing one.
        vcpus: of a slot; it draws `max_mw` when all of them compute.
        pue_thousandths: the building's draw over that of its computers, in thousandths.
        embodied_g: grams of CO2e for the making of a server (TE); 0: not counted.
        lifetime_s: the service life of a server (EL).
        server_slots: slots that share a server (ToR, of which a slot is RR = 1).
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
        """The draw of a computing slot, with its share of the building."""
        return self.max_mw * self.pue_thousandths / 1e6


@dataclass(frozen=True, slots=True)
class Intensity:
    """CO2e of a kilowatt-hour now, and the source of the figure."""

    mg_per_kwh: int
    source: str


@dataclass(frozen=True, slots=True)
class Emissions:
    """The known emissions of a pool: its draw, and its grid's intensity now and in coming hours.

    Booked figures use `intensity` alone.
    """

    machine: Machine | None = None
    intensity: Intensity | None = None
    ahead: Outlook | None = None


@dataclass(frozen=True, slots=True)
class Footprint:
    """The emissions of a run. Without a source, its carbon is unknown, not zero.

    Attributes:
        energy_uj: microjoules, of the hardware and the building.
        carbon_ng: nanograms of CO2e for that energy; `embodied_ng` for the making of the hardware.
        intensity_mg_per_kwh: the intensity behind `carbon_ng`.
        source: the source of the intensity.
    """

    energy_uj: int = 0
    carbon_ng: int = 0
    embodied_ng: int = 0
    intensity_mg_per_kwh: int = 0
    source: str = ""

    def split(self, weights: Sequence[int]) -> "list[Footprint]":
        """Split in proportion to weights, not all zero, into parts that add up to this exactly.

        Each part is rounded down, and the last has the remainder.
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
        """Return a copy whose source is marked as another site's word."""
        source = f"{site} says: {self.source}"[:SOURCE_CHARS_MAX] if self.source else ""
        return Footprint(
            self.energy_uj, self.carbon_ng, self.embodied_ng, self.intensity_mg_per_kwh, source
        )


NOTHING_KNOWN: Final = Footprint()


def mg_per_kwh(grams: float | str) -> int:
    """Convert an intensity in g/kWh to mg/kWh; raise ValueError when it is impossible."""
    try:
        exact = Decimal(str(grams))
    except InvalidOperation:
        raise ValueError("the intensity is not a number") from None
    most = INTENSITY_MAX_MG_PER_KWH // 1_000
    if not exact.is_finite() or not 0 <= exact <= most:
        raise ValueError(f"{str(exact)[:20]} g/kWh: must be from 0 to {most:,}")
    return int((exact * 1_000).to_integral_value(ROUND_HALF_UP))


def energy_uj(machine: Machine, wall_ns: int, cpu_ns: int) -> int:
    """Return the energy of this slot time, during which CPUs were busy for `cpu_ns`."""
    full_ns = wall_ns * machine.vcpus
    above_mw = machine.max_mw - machine.idle_mw
    # Milliwatts by nanoseconds are a millionth of a microjoule.
    draw = machine.idle_mw * full_ns + above_mw * min(cpu_ns, full_ns)
    return _divided(draw * machine.pue_thousandths, machine.vcpus * 10**9)


def carbon_ng(energy_uj: int, mg_per_kwh: int) -> int:
    """Return O = E·I. A kilowatt-hour is 3.6e12 microjoules, a milligram 1e6 nanograms."""
    return _divided(energy_uj * mg_per_kwh, 3_600_000)


def embodied_ng(machine: Machine, wall_ns: int) -> int:
    """Return M = TE·(TiR/EL)·(RR/ToR) of this slot time."""
    return _divided(machine.embodied_g * wall_ns, machine.lifetime_s * machine.server_slots)


def footprint(emissions: Emissions | None, wall_ns: int, cpu_ns: int) -> Footprint:
    """Return the emissions of this time in a pool's slots, as far as they are known."""
    if emissions is None or emissions.machine is None:
        return NOTHING_KNOWN
    machine, intensity = emissions.machine, emissions.intensity
    energy, embodied = energy_uj(machine, wall_ns, cpu_ns), embodied_ng(machine, wall_ns)
    if intensity is None:
        return Footprint(energy, 0, embodied)
    carbon = carbon_ng(energy, intensity.mg_per_kwh)
    return Footprint(energy, carbon, embodied, intensity.mg_per_kwh, intensity.source)


def objection(found: Footprint, wall_ns: int) -> str:
    """Explain why a stated footprint is impossible for this slot time; empty if it is possible."""
    if found.intensity_mg_per_kwh > INTENSITY_MAX_MG_PER_KWH:
        return "the carbon intensity is above the possible maximum"
    if found.energy_uj * 1_000 > wall_ns * SLOT_WATTS_MAX * PUE_MAX + 1_000:
        return "the energy is more than the slots can draw in that time"
    if found.embodied_ng * LIFETIME_S_MIN > wall_ns * EMBODIED_G_MAX + LIFETIME_S_MIN:
        return "the embodied emissions are above the possible maximum"
    # A difference of one is rounding.
    if abs(found.carbon_ng - carbon_ng(found.energy_uj, found.intensity_mg_per_kwh)) > 1:
        return "the emissions differ from the energy times its intensity"
    if not found.source and found.intensity_mg_per_kwh:
        return "the carbon intensity has no source"
    if len(found.source) > SOURCE_CHARS_MAX or not found.source.isprintable():
        return f"the source must have at most {SOURCE_CHARS_MAX} printable characters"
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
